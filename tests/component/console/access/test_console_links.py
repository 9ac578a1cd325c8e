"""The console by a link: what it shows, in which frames, without a cookie, and until when."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from console.live import STREAMS_OF_A_TENANT_MAX
from shared.config.access import ApiKey
from shared.proof.overview import DestinationView, StreamVerdict
from shared.runtime.clock import now_ms
from shared.runtime.tokens.links import link_key_of, read_link, write_link
from tests.component.console.access.test_console_access import PATHS, make_key, sign_in
from tests.component.console.pages.test_console_browser import AXE_FINDS, axe
from tests.support.console.browser import Browser, Tab
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    found_event,
    letter,
    overview,
)

PORTAL = "https://portal.example"
NOT_SHOWN = ("/keys", "/channels", "/tenants")


@pytest.fixture
def maker(locked_console: RunningConsole) -> str:
    """Return an administrator's key of the tenant that owns the stream players."""
    return linking_key(locked_console, tenant="studio")


@pytest.fixture
def visitor(locked_console: RunningConsole) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=locked_console.url, follow_redirects=True) as client:
        yield client


def linking_key(console: RunningConsole, *, tenant: str, name: str = "portal") -> str:
    key, text = make_key(name, "admin", tenant=tenant)
    configure(console, replace(key, secrets=(replace(key.secrets[0], link_key=link_key_of(text)),)))
    return text


def link(console: RunningConsole, maker: str, **asked: Any) -> str:
    """Have the gateway make a link, and return its path in the console."""
    headers = {"authorization": f"Bearer {maker}"}
    made = console.gateway.client.post("/v1/links", headers=headers, json=asked)
    assert made.status_code == 201, made.text
    path: str = made.json()["path"]
    return path.rstrip("/")


def keys_of(console: RunningConsole) -> dict[str, ApiKey]:
    return dict(console.config.configuration.keys)


def revoke(console: RunningConsole) -> None:
    key = keys_of(console)["portal"].config_key
    console.config.configuration = console.config.configuration.apply(key, None)


def framed_by(answer: httpx.Response) -> str:
    policy = answer.headers["content-security-policy"]
    found = re.search(r"frame-ancestors ([^;]*)$", policy)
    assert found
    assert ("x-frame-options" in answer.headers) is (found[1] == "'none'")
    return found[1]


def test_a_link_shows_its_tenant_without_a_cookie(
    locked_console: RunningConsole, visitor: httpx.Client, maker: str
) -> None:
    locked_console.dead.letters = [letter("secret-event")]
    locked_console.events.found["orders", "e-1"] = found_event("e-1")
    below = link(locked_console, maker)
    shown = visitor.get(f"{below}/")
    assert shown.status_code == 200
    assert "players" in shown.text
    for path in (
        *PATHS,
        "/api/overview",
        "/streams",
        *NOT_SHOWN,
        "/tables",
        "/alerts",
        "/events/newest",
    ):
        answer = visitor.get(below + path)
        assert "set-cookie" not in answer.headers
        assert "billing" not in answer.text, path
        assert "secret-event" not in answer.text, path
        assert '<button type="submit" class="act"' not in answer.text, path
        wanted = 404 if "orders" in path and "?" not in path else 403 if path in NOT_SHOWN else 200
        assert answer.status_code in {wanted, 404}, path
    assert locked_console.events.asked == []
    listed = visitor.get(f"{below}/api/overview").json()
    assert [stream["name"] for stream in listed["streams"]] == ["players"]


def test_every_way_on_stays_below_the_link(
    locked_console: RunningConsole, visitor: httpx.Client, maker: str
) -> None:
    locked_console.events.found["players", "e-1"] = found_event("e-1")
    below = link(locked_console, maker)
    seen, coming = {f"{below}/"}, [f"{below}/"]
    while coming:
        answer = visitor.get(coming.pop())
        assert answer.status_code == 200, answer.url
        if "html" not in answer.headers["content-type"]:
            continue
        for lead in re.findall(r' (?:href|src|action)="([^"]*)"', answer.text):
            assert lead.startswith((f"{below}/", "#")), (answer.url, lead)
            place = lead.partition("#")[0]
            path = place.partition("?")[0]
            if path and path not in seen:
                seen.add(path)
                # Replays belong to a stream, which the query names.
                coming.append(place if path.endswith("/replays") else path)
    ways = {path.removeprefix(below) for path in seen}
    assert {"/streams/players", "/static/console.js", "/dead", "/words", "/changes"} <= ways
    assert not ways & {*NOT_SHOWN}
    # The page of the only event that was found.
    found = visitor.get(f"{below}/events?id=e-1")
    assert found.url.path == f"{below}/events"
    assert "stream=players" in str(found.url)


def test_live_news_lead_below_the_link_and_end_with_it(
    locked_console: RunningConsole, visitor: httpx.Client, maker: str
) -> None:
    below = link(locked_console, maker)
    with visitor.stream("GET", f"{below}/live?path=/") as news:
        lines = news.iter_lines()
        assert next(lines) == "event: news"
        regions = json.loads(next(lines).removeprefix("data: "))["regions"]
        text = "".join(piece for pieces in regions.values() for piece in pieces)
        leads = re.findall(r' href="([^"]*)"', text)
        assert leads
        assert all(lead.startswith(f"{below}/") for lead in leads)
        revoke(locked_console)
        assert "event: gone" in lines


def test_the_live_pages_of_a_tenant_leave_room_for_others(
    locked_console: RunningConsole, visitor: httpx.Client, maker: str
) -> None:
    below = link(locked_console, maker)
    other = link(locked_console, linking_key(locked_console, tenant="default", name="ops"))
    followed = []
    with ExitStack() as open_pages:
        for _ in range(STREAMS_OF_A_TENANT_MAX):
            news = open_pages.enter_context(visitor.stream("GET", f"{below}/live?path=/"))
            # Keep a reference: an iterator that is collected closes its page.
            followed.append(news.iter_lines())
            assert next(followed[-1]) == "event: news"
        assert visitor.get(f"{below}/live?path=/").status_code == 503
        # The page itself is served, without news.
        assert visitor.get(f"{below}/").status_code == 200
        with visitor.stream("GET", f"{other}/live?path=/") as news:
            assert next(news.iter_lines()) == "event: news"


def test_a_link_may_be_for_some_streams(
    locked_console: RunningConsole, visitor: httpx.Client
) -> None:
    maker = linking_key(locked_console, tenant="default")
    below = link(locked_console, maker, streams=["orders"])
    assert "billing" in visitor.get(f"{below}/destinations").text
    # The operator's key may make links for any tenant; each link shows one tenant.
    below = link(locked_console, maker, tenant="studio")
    page = visitor.get(f"{below}/destinations").text
    assert "stats" in page
    assert "billing" not in page


def test_who_looks_by_a_link_changes_nothing(
    locked_console: RunningConsole, visitor: httpx.Client, maker: str
) -> None:
    below = link(locked_console, maker)
    # Below a link its rights apply, even if the visitor has also signed in.
    sign_in(visitor, linking_key(locked_console, tenant="default", name="ops"))
    assert visitor.get("/keys").status_code == 200
    headers = {"authorization": f"Bearer {maker}"}
    for path in (
        *NOT_SHOWN,
        "/keys/new",
        "/streams:new",
        "/dead/redrive",
        "/keys/revoke?id=portal",
    ):
        assert visitor.get(below + path, headers=headers).status_code == 403, path
    for path in ("/streams/orders", "/sign-in", "/sign-in/with"):
        assert visitor.get(below + path, headers=headers).status_code == 404, path
    before = locked_console.config.configuration
    for path in ("/keys/new", "/keys/revoke", "/sign-out", "/sign-in", "/events/payload"):
        answer = visitor.post(below + path, data={"id": "portal", "csrf": ""}, headers=headers)
        assert answer.status_code == 403, path
        assert "cannot change anything" in answer.text
    assert locked_console.config.configuration == before


def test_only_the_pages_of_a_link_may_be_framed_and_only_by_its_origins(
    locked_console: RunningConsole, visitor: httpx.Client, maker: str
) -> None:
    both = ["http://localhost:3000", PORTAL]
    below = link(locked_console, maker, origins=both)
    for path in ("/", "/streams/players", "/nothing", "/static/console.js", "/keys"):
        assert framed_by(visitor.get(below + path)) == " ".join(both)
    for path in ("/", "/sign-in", "/nothing", "/static/console.js", "/embed", "/embed/"):
        assert framed_by(visitor.get(path)) == "'none'"
    assert framed_by(visitor.get(link(locked_console, maker))) == "'none'"


def test_a_link_that_shows_nothing_says_why(
    locked_console: RunningConsole, visitor: httpx.Client, maker: str
) -> None:
    below = link(locked_console, maker, origins=[PORTAL])
    _, _, text = below.rpartition("/")
    forged = visitor.get(f"/embed/{text[:-2]}/streams")
    cut = visitor.get("/embed/hifilk_e30.e30/")
    hostile = visitor.get(f'/embed/{text}"><script>/')
    for answer in (forged, cut, hostile):
        assert answer.status_code == 403
        assert framed_by(answer) == "'none'"
        assert "<script>/" not in answer.text
        assert "Get a new link" in answer.text
    made = read_link(text, keys_of(locked_console), now_ms=now_ms())
    ended = write_link(replace(made, expires_at_ms=now_ms() - 1), maker)
    answer = visitor.get(f"/embed/{ended}/streams")
    assert answer.status_code == 403
    assert "This link has expired." in answer.text
    # People can read that in the frame that showed the page.
    assert framed_by(answer) == PORTAL
    revoke(locked_console)
    answer = visitor.get(f"{below}/streams")
    assert answer.status_code == 403
    assert "is gone" in answer.text


def test_a_link_shows_no_more_in_a_console_that_asks_nobody(
    console: RunningConsole, client: httpx.Client
) -> None:
    below = link(console, linking_key(console, tenant="studio"))
    assert "billing" in client.get("/destinations").text
    assert "billing" not in client.get(f"{below}/destinations").text
    assert client.get(f"{below}/keys/new").status_code == 403


class _Portal(BaseHTTPRequestHandler):
    """A page of another site, with the console in a frame; the query is the frame's address."""

    def do_GET(self) -> None:
        framed = self.path.partition("?")[2]
        page = (
            "<!doctype html><html lang=en><title>Portal</title><h1>Portal</h1>"
            f"<iframe title='Hifi' width=800 height=600 src='{framed}'></iframe>"
        )
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def portal() -> Iterator[int]:
    """Serve the portal, and return its port; localhost and 127.0.0.1 are different sites."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Portal)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    with browser.page() as tab:
        yield tab


def test_a_page_of_the_links_origin_frames_the_console(
    locked_console: RunningConsole, tab: Tab, maker: str
) -> None:
    with portal() as port:
        below = link(locked_console, maker, origins=[f"http://localhost:{port}"])
        tab.open(f"http://localhost:{port}/?{locked_console.url}{below}/")
        frame = tab.frame(below)
        is_live = "document.querySelector('#live')?.dataset.state === 'live'"
        frame.wait_for(is_live, what="it is live")
        assert frame.run("window.top !== window.self")
        assert "players" in frame.text("main")
        assert "billing" not in frame.text("body")
        assert frame.run("document.cookie") == ""
        check_with_axe(frame)
        orders, players = overview().streams
        alarmed = replace(players, destinations=(told(players.destinations[0], "as of now"),))
        locked_console.show(replace(overview(), streams=(orders, alarmed)))
        frame.wait_for("document.body.innerText.includes('as of now')", what="the news is there")
        frame.click_and_load("nav a[href$='/destinations']")
        assert frame.run("location.pathname") == f"{below}/destinations"
        assert "stats" in frame.text("main")
        frame.wait_for(is_live, what="it is live")
        assert frame.complaints() == tab.complaints() == []


def test_a_link_that_has_ended_says_so_in_its_frame(
    locked_console: RunningConsole, tab: Tab, maker: str
) -> None:
    with portal() as port:
        below = link(locked_console, maker, origins=[f"http://localhost:{port}"])
        text = below.removeprefix("/embed/")
        made = read_link(text, keys_of(locked_console), now_ms=now_ms())
        ended = write_link(replace(made, expires_at_ms=now_ms() - 1), maker)
        tab.open(f"http://localhost:{port}/?{locked_console.url}/embed/{ended}/")
        frame = tab.frame(ended)
        frame.wait_for("document.querySelector('h1')", what="it has a heading")
        assert "This link has expired." in frame.text("main")
        check_with_axe(frame)


def test_a_page_of_another_origin_frames_nothing(
    locked_console: RunningConsole, tab: Tab, maker: str
) -> None:
    by_name = locked_console.url.replace("127.0.0.1", "localhost")
    with portal() as port:
        theirs = [f"http://localhost:{port}"]
        paths = (link(locked_console, maker, origins=theirs), link(locked_console, maker), "")
        for refused, path in enumerate(paths, start=1):
            # Opened by its IP address, the portal has another origin than by its name.
            tab.open(f"http://127.0.0.1:{port}/?{by_name}{path}/")
            said = [each for each in tab.complaints() if "frame-ancestors" in each]
            assert len(said) >= refused, path


def told(view: DestinationView, reason: str) -> DestinationView:
    return replace(view, verdict=StreamVerdict.FAILING, reason=reason)


def check_with_axe(frame: Tab) -> None:
    frame.run(f"{axe()}; 0")
    assert frame.run(AXE_FINDS) == []
