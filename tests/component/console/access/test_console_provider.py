"""Signing in with a third-party provider, over HTTP and in a browser."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from gateway.authors import Author
from gateway.settings import Settings
from tests.component.console.pages.test_console_browser import AXE_FINDS, axe
from tests.support.console.browser import Browser
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    csrf_of,
    overview,
    served_console,
)
from tests.support.console.providers import (
    CLIENT,
    console_settings,
    free_port,
    real_provider,
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """Start a console, its gateway, and a provider whose tokens both of them accept."""
    folder, port = tmp_path_factory.mktemp("oidc"), free_port()
    with real_provider(f"http://127.0.0.1:{port}/sign-in/back") as issuer:
        keys = folder / "keys.json"
        keys.write_text(httpx.get(f"{issuer}/jwks").text)
        behind = Settings(
            auth="keys",
            jwt_keys_file=keys,
            jwt_issuer=issuer,
            jwt_audience=f"hifi, {CLIENT}",
            jwt_tenant_claim="company",
            jwt_scope_claim="groups",
            jwt_read_value="hifi-read",
            jwt_admin_value="hifi-admin",
        )
        with served_console(console_settings(issuer, port, folder), behind) as running:
            configure(running)
            running.show(overview())
            yield running


@pytest.fixture
def visitor(served: RunningConsole) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url) as client:
        yield client


class _Form(HTMLParser):
    """The first form of a page, with its filled-in values."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.action, self.fields = "", dict[str, str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.action = self.action or told["action"]
        elif tag == "input" and "name" in told:
            self.fields[told["name"]] = told.get("value", "")


def sign_in(visitor: httpx.Client, account: str, *, next_path: str = "/") -> httpx.Response:
    """Fill in and send the provider's forms, and return the last response."""
    answer = visitor.get("/sign-in/with", params={"next": next_path})
    for _ in range(12):
        if "location" in answer.headers:
            answer = visitor.get(str(answer.next_request.url if answer.next_request else ""))
        elif "<form" in answer.text and str(answer.url).startswith("http://localhost"):
            form = _Form(answer.text)
            typed = {"login": account, "password": "x"} if "login" in form.fields else {}
            answer = visitor.post(form.action, data=form.fields | typed)
        else:
            break
    return answer


def test_somebody_signs_in_and_sees_their_own_tenant(visitor: httpx.Client) -> None:
    answer = sign_in(visitor, "studio.read", next_path="/streams/players?range=1h")
    assert answer.status_code == 200, answer.text
    assert answer.headers["refresh"] == "0; url=/streams/players?range=1h"
    cookie = next(it for it in answer.headers.get_list("set-cookie") if "hifi-console=" in it)
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert visitor.get("/streams/players").status_code == 200
    assert visitor.get("/streams/orders").status_code == 404, "the stream is another tenant's"
    assert visitor.get("/streams:new").status_code == 403, "a reader may change nothing"
    # The gateway accepts the same token.
    assert visitor.get("/changes").status_code != 401
    fields = {"csrf": csrf_of(visitor.get("/").text)}
    assert visitor.post("/sign-out", data=fields).headers["location"] == "/sign-in"
    assert visitor.get("/").status_code == 303


def test_an_admin_changes_through_the_gateway_with_their_own_token(
    served: RunningConsole, visitor: httpx.Client
) -> None:
    sign_in(visitor, "studio.admin")
    fields = {"csrf": csrf_of(visitor.get("/keys/new").text), "name": "made-by-ann", "read": "on"}
    answer = visitor.post("/keys/new", data=fields)
    assert answer.status_code == 200, answer.text
    assert served.config.configuration.keys["made-by-ann"].tenant == "studio"
    (stored,) = [it for it in served.store.recorded if it.change.name == "made-by-ann"]
    assert stored.change.by == Author("studio", "token", "studio.admin")


@pytest.mark.parametrize(
    ("account", "says"), [("studio.guest", "neither"), ("No tenant.admin", "claim company")]
)
def test_who_may_do_nothing_is_told_so(visitor: httpx.Client, account: str, says: str) -> None:
    answer = sign_in(visitor, account)
    assert answer.status_code == 502
    assert says in answer.text
    assert visitor.get("/").status_code == 303


def test_a_browser_comes_back_signed_in(served: RunningConsole, browser: Browser) -> None:
    with browser.page() as tab:
        tab.open(f"{served.url}/streams/players")
        assert tab.text("#provider") == "Sign in with Example"
        tab.run(f"{axe()}; 0")
        assert tab.run(AXE_FINDS) == []
        tab.click_and_load("#provider")
        tab.run("document.querySelector('input[name=login]').focus()")
        tab.type("studio.read")
        tab.run("document.querySelector('input[name=password]').focus()")
        tab.type("x")
        tab.click_and_load("button[type=submit]")
        tab.click_and_load("button[type=submit]")
        tab.wait_for(
            "location.pathname === '/streams/players' && document.querySelector('.account')",
            what="the requested page is shown",
        )
        assert tab.text("h1").startswith("players")
        assert "studio.read" in tab.text(".account")
        assert tab.run("document.cookie") == ""
        # The provider's own pages load a font and an icon that are not available here.
        theirs = ("fonts.googleapis.com", "http://localhost")
        assert [it for it in tab.complaints() if not any(name in it for name in theirs)] == []


def test_settings_that_say_half_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="OIDC_CLIENT_ID is not"):
        console_settings("https://id.example", 1, tmp_path, oidc_client_id="")
    with pytest.raises(Exception, match="CONSOLE_URL is not"):
        console_settings("https://id.example", 1, tmp_path, url="")
    with pytest.raises(Exception, match="AUTH=keys"):
        console_settings("https://id.example", 1, tmp_path, auth="off")
    for address in ("http://id.example", "id.example", "https://id.example/?a=b"):
        with pytest.raises(Exception, match="only for this machine"):
            console_settings(address, 1, tmp_path)
    missing = console_settings(
        "https://id.example", 1, tmp_path, oidc_client_secret_file=tmp_path / "no"
    )
    with pytest.raises(Exception, match="cannot be read"):
        _ = missing.oidc_client_secret
