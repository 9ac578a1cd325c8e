"""The frame of every page: head, navigation, live regions, footer."""

from collections.abc import Mapping
from dataclasses import dataclass

from console.parts.markup import NOTHING, Child, Safe, document, fragment, tag

_PAGES = (
    ("/", "Overview"),
    ("/streams", "Streams"),
    ("/destinations", "Destinations"),
    ("/pipelines", "Pipelines"),
    ("/tables", "Tables"),
    ("/alerts", "Alerts"),
    ("/channels", "Channels"),
    ("/dead", "Dead letters"),
    ("/events", "Find an event"),
    ("/tenants", "Tenants"),
    ("/keys", "Keys"),
    ("/changes", "Changes"),
)

# Not shown to viewers with a link: pages about the people of a tenant, not about its events.
_NOT_BY_LINK = ("/channels", "/keys", "/tenants")


def is_shown_by_link(path: str) -> bool:
    return not path.startswith(_NOT_BY_LINK)


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a page; a live region is sent again when it has changed."""

    id: str
    content: Safe
    is_live: bool = True


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    # The path of the highlighted entry in the navigation.
    here: str
    regions: tuple[Region, ...]
    # One sentence that screen readers read aloud when it changes.
    status: str = ""


@dataclass(frozen=True, slots=True)
class PageFrame:
    """The facts of a session that its pages need."""

    csrf: str
    key_id: str = ""
    is_open: bool = False
    # The viewer came by a link, most likely in a frame.
    has_link: bool = False


def render(page: Page, around: PageFrame) -> bytes:
    """Return the whole document."""
    return document(
        tag(
            "html",
            _head(page.title),
            tag(
                "body",
                tag("a", "Skip to content", href="#content", class_="skip"),
                _header(page, around),
                tag(
                    "main",
                    [_region(region) for region in page.regions],
                    id="content",
                    tabindex="-1",
                ),
                tag("div", page.status, id="status", role="status", class_="unseen"),
                _footer(around),
            ),
            lang="en",
        )
    )


def render_bare(title: str, *content: Child, has_home: bool = True) -> bytes:
    """Return a page without navigation: for sign-in, and for people who may see nothing."""
    main = tag("main", *content, id="content", tabindex="-1", class_="bare")
    name = (
        tag("a", "Hifi", href="/", class_="logo")
        if has_home
        else tag("span", "Hifi", class_="logo")
    )
    top = tag("header", name, class_="top")
    return document(tag("html", _head(title), tag("body", top, main), lang="en"))


def still_page(title: str, here: str, region: str, *content: Child, status: str = "") -> Page:
    """Return a page that gets no live updates."""
    return Page(title, here, (Region(region, fragment(*content), is_live=False),), status)


def form(
    method: str, path: str, hidden: Mapping[str, str | int], *content: Child, **attributes: str
) -> Safe:
    """Return a form with hidden fields and other content."""
    fields = [tag("input", type="hidden", name=name, value=hidden[name]) for name in hidden]
    return tag("form", fields, *content, method=method, action=path, **attributes)


def confirm_form(
    path: str, around: PageFrame, *, yes: str, no: str, back: str, **fields: str | int
) -> Safe:
    """Return the button that confirms, and a link back."""
    button = tag("button", yes, type="submit", class_="act")
    hidden = {"csrf": around.csrf, **fields}
    return form("post", path, hidden, button, " ", tag("a", no, href=back))


def _head(title: str) -> Safe:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("title", f"{title} · Hifi"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="/static/logo.svg", type="image/svg+xml"),
        tag("link", rel="stylesheet", href="/static/console.css"),
        tag("script", src="/static/console.js", defer=True),
        tag("script", src="/static/pictures.js", defer=True),
    )


def _header(page: Page, around: PageFrame) -> Safe:
    links = [
        tag("li", tag("a", name, href=path, aria_current="page" if path == page.here else None))
        for path, name in _PAGES
        if is_shown_by_link(path) or not around.has_link
    ]
    is_live = any(region.is_live for region in page.regions)
    live = tag(
        "button",
        tag("span", class_="dot", aria_hidden="true"),
        tag("span", "Live", class_="live-text"),
        id="live",
        type="button",
        aria_pressed="true",
        title="Pause or resume live updates",
        hidden=True,
    )
    return tag(
        "header",
        tag("a", "Hifi", href="/", class_="logo"),
        tag("nav", tag("ul", links), aria_label="Pages"),
        tag("div", live if is_live else NOTHING, _account(around), class_="account"),
        class_="top",
    )


def _account(around: PageFrame) -> Safe:
    if not around.key_id:
        return NOTHING
    return form(
        "post",
        "/sign-out",
        {"csrf": around.csrf},
        tag("span", around.key_id, class_="quiet"),
        tag("button", "Sign out", type="submit", class_="plain"),
    )


def _footer(around: PageFrame) -> Safe:
    says = "All times are UTC."
    if around.is_open:
        says += (
            " Sign-in is off because this console listens only on this machine:"
            " anyone who can open this page can change everything."
        )
    return tag("footer", tag("p", says, " ", tag("a", "Glossary", href="/words")))


def _region(region: Region) -> Safe:
    return tag(
        "div",
        region.content,
        id=region.id,
        class_="region",
        data_live=True if region.is_live else None,
    )
