"""The pages that stand alone: sign-in, and what is said when something is refused or not there."""

from observe.console.parts.layout import form, render_bare
from observe.console.parts.markup import NOTHING, tag


def sign_in_page(*, csrf: str, next_path: str, problem: str = "") -> bytes:
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
    )


def notice(title: str, says: str) -> bytes:
    back = tag("p", tag("a", "To the overview", href="/"))
    return render_bare(title, tag("h1", title), tag("p", says), back)
