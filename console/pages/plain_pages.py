"""Pages about no single thing: sign-in, refusals, missing pages, and the glossary."""

from urllib.parse import urlencode

from console.page_request import PageRequest
from console.parts.layout import Page, PageFrame, form, render, render_bare, still_page
from console.parts.markup import NOTHING, tag
from console.parts.pieces import code
from shared.glossary import WORDS, hint_of


def sign_in_page(*, csrf: str, next_path: str, problem: str = "", provider: str = "") -> bytes:
    """Return the page to sign in with a key, or with the named provider."""
    return render_bare(
        "Sign in",
        tag("h1", "Sign in"),
        tag("p", "With an API key that has the scope read or admin.", class_="lead"),
        tag(
            "p",
            "Create the first one with the operator key: ",
            tag("code", "hifi keys create root --scope admin"),
            ".",
            class_="quiet",
        ),
        tag("p", problem, class_="bad", role="alert", id="problem") if problem else NOTHING,
        form(
            "post",
            "/sign-in",
            {"csrf": csrf, "next": next_path},
            tag("label", "API key", for_="key"),
            tag(
                "input",
                id="key",
                name="key",
                type="password",
                autocomplete="current-password",
                required=True,
                autofocus=True,
                aria_describedby="problem" if problem else None,
            ),
            tag("button", "Sign in", type="submit", class_="act"),
            class_="card pad column",
        ),
        tag(
            "p",
            "Without a key: ",
            tag(
                "a",
                f"Sign in with {provider}",
                href=f"/sign-in/with?{urlencode({'next': next_path})}",
                id="provider",
            ),
        )
        if provider
        else NOTHING,
    )


def signed_in_page(next_path: str) -> bytes:
    """Return the page after sign-in, from which a browser continues by itself."""
    return render_bare(
        "Signed in",
        tag("h1", "You are signed in"),
        tag("p", tag("a", "Continue", href=next_path)),
    )


def ended_page(says: str) -> bytes:
    """Return the page of a link that no longer shows anything; it links nowhere."""
    again = "Get a new link where you got this one, or reload the page that contains the view."
    title = "This view is not available"
    content = [tag("h1", title), tag("p", says, class_="lead"), tag("p", again)]
    return render_bare(title, *content, has_home=False)


def notice(title: str, says: str, *, has_link: bool = False) -> bytes:
    """Return a notice with a link to the overview; every other page checks who may see it."""
    back = tag("p", tag("a", "To the overview", href="/"))
    page = still_page(title, "", "notice", tag("h1", title), tag("p", says), back)
    return render(page, PageFrame(csrf="", has_link=has_link))


def soon_page(path: str) -> Page:
    """Return the page of a thing that was just created; its content comes with the next figures."""
    kind, *name = path.strip("/").split("/")
    return still_page(
        "Created",
        f"/{kind}",
        "soon",
        tag("h1", code("/".join(name)), " is created"),
        tag("p", "The first figures come within a second or two.", class_="lead"),
        tag("p", tag("a", "Reload", href=path)),
    )


async def words_page(_: PageRequest) -> Page:
    """Show the glossary, to which the words on other pages link."""
    listed = [
        tag("div", tag("dt", word.name), tag("dd", hint_of(word)), id=word.anchor) for word in WORDS
    ]
    return still_page(
        "Words",
        "",
        "words",
        tag("h1", "Words"),
        tag("p", "The meaning of words on these pages and in the commands.", class_="lead"),
        tag("dl", listed, class_="words card pad"),
    )
