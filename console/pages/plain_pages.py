"""The pages that stand alone: sign-in, refusals, missing pages, and the glossary."""

from urllib.parse import urlencode

from console.page_request import PageRequest
from console.parts.layout import Page, PageFrame, form, render, render_bare, still_page
from console.parts.markup import NOTHING, tag
from console.parts.pieces import code
from shared.glossary import WORDS, hint_of


def sign_in_page(*, csrf: str, next_path: str, problem: str = "", provider: str = "") -> bytes:
    """The page to sign in by key, or with the provider of that name."""
    return render_bare(
        "Sign in",
        tag("h1", "Sign in"),
        tag("p", "With an API key that has the scope read or admin.", class_="lead"),
        tag(
            "p",
            "The first one is made with the operator's key: ",
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
    """The page after sign-in, from where a browser goes on by itself."""
    return render_bare(
        "Signed in",
        tag("h1", "You are signed in"),
        tag("p", tag("a", "Go on", href=next_path)),
    )


def ended_page(says: str) -> bytes:
    """The page of a link that shows nothing: there is nowhere to go from here."""
    again = "Ask for another one where you got this link, or reload the page that shows it."
    title = "This view is not here"
    content = [tag("h1", title), tag("p", says, class_="lead"), tag("p", again)]
    return render_bare(title, *content, has_home=False)


def notice(title: str, says: str, *, has_link: bool = False) -> bytes:
    """A notice with a link to all other pages, which check for themselves who may see them."""
    back = tag("p", tag("a", "To the overview", href="/"))
    page = still_page(title, "", "notice", tag("h1", title), tag("p", says), back)
    return render(page, PageFrame(csrf="", has_link=has_link))


def soon_page(path: str) -> Page:
    """The page of a thing that was just made: its content comes with the next figures."""
    kind, *name = path.strip("/").split("/")
    return still_page(
        "Made",
        f"/{kind}",
        "soon",
        tag("h1", code("/".join(name)), " is there"),
        tag("p", "Its first figures come within a second or two.", class_="lead"),
        tag("p", tag("a", "Look again", href=path)),
    )


async def words_page(_: PageRequest) -> Page:
    """The glossary, to which the words on other pages lead."""
    listed = [
        tag("div", tag("dt", word.name), tag("dd", hint_of(word)), id=word.anchor) for word in WORDS
    ]
    return still_page(
        "Words",
        "",
        "words",
        tag("h1", "Words"),
        tag("p", "Their meaning, here and in the commands.", class_="lead"),
        tag("dl", listed, class_="words card pad"),
    )
