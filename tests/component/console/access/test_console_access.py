"""Access to the console: sign-in, sessions, tenants, CSRF, host names, headers, payloads."""

from collections.abc import Iterator
from html.parser import HTMLParser

import httpx
import pytest

from shared.config.access import ENTROPY_BYTES, ApiKey, Scope, new_text, secret_from
from shared.runtime.clock import now_ms
from shared.runtime.setup_error import KafkaUnavailableError
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    csrf_of,
    found_event,
    letter,
)

PATHS = [
    "/",
    "/destinations",
    "/streams/orders",
    "/streams/orders/billing",
    "/dead",
    "/dead/letters",
    "/events?stream=orders&id=e-1",
    *("/tenants", "/keys", "/changes", "/words"),
]
POSTS = [
    "/events/payload",
    "/dead/redrive",
    "/keys/new",
    "/keys/rotate",
    "/keys/revoke",
    "/destinations/resume",
    "/sign-out",
]


def make_key(
    key_id: str, *scopes: Scope, tenant: str = "default", streams: tuple[str, ...] = ()
) -> tuple[ApiKey, str]:
    text = new_text(kind="secret", key_id=key_id, entropy=key_id.encode().ljust(ENTROPY_BYTES))
    key = ApiKey(
        key_id,
        (secret_from(text, signs=False),),
        tenant=tenant,
        scopes=frozenset(scopes),
        streams=frozenset(streams),
    )
    return key, text


@pytest.fixture
def visitor(locked_console: RunningConsole) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=locked_console.url, verify=False) as client:
        yield client


def sign_in(client: httpx.Client, text: str, *, next_path: str = "/") -> httpx.Response:
    form = client.get("/sign-in")
    fields = {"csrf": csrf_of(form.text), "key": text, "next": next_path}
    return client.post("/sign-in", data=fields)


@pytest.mark.parametrize("path", PATHS)
def test_an_open_console_shows_every_page(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert "Sign-in is off" in answer.text
    assert answer.text.count("<h1") == 1


@pytest.mark.parametrize("path", PATHS)
def test_a_locked_console_shows_nothing_before_sign_in(visitor: httpx.Client, path: str) -> None:
    answer = visitor.get(path)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/sign-in?next=%2F")
    assert "orders" not in answer.text


@pytest.mark.parametrize("path", ["/api/overview", "/live?path=/"])
def test_a_locked_console_tells_programs_nothing(visitor: httpx.Client, path: str) -> None:
    answer = visitor.get(path)
    assert answer.status_code == 401
    assert "bearer" in answer.headers["www-authenticate"].lower()


def test_a_key_signs_in_and_goes_where_it_wanted(
    locked_console: RunningConsole, visitor: httpx.Client
) -> None:
    key, text = make_key("ops", "read")
    configure(locked_console, key)
    answer = sign_in(visitor, text, next_path="/dead?stream=orders")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/dead?stream=orders"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "ops" in visitor.get("/").text


@pytest.mark.parametrize(
    "next_path", ["//evil.example", "https://evil.example", "/\\evil.example", "/sign-out", "x"]
)
def test_sign_in_leads_nowhere_else(
    locked_console: RunningConsole, visitor: httpx.Client, next_path: str
) -> None:
    key, text = make_key("ops", "read")
    configure(locked_console, key)
    assert sign_in(visitor, text, next_path=next_path).headers["location"] == "/"


def test_wrong_keys_say_so_and_lock_nobody_out(
    locked_console: RunningConsole, visitor: httpx.Client
) -> None:
    writer, writer_text = make_key("writer", "write")
    configure(locked_console, writer)
    answer = sign_in(visitor, "hifisk_no")
    assert answer.status_code == 401
    assert "not a complete key" in answer.text
    stranger, stranger_text = make_key("stranger", "read")
    assert "This key does not exist" in sign_in(visitor, stranger_text).text
    assert "can only write" in sign_in(visitor, writer_text).text
    for _ in range(50):
        assert sign_in(visitor, "hifisk_no").status_code == 401
    assert stranger.id not in locked_console.config.configuration.keys
    reader, reader_text = make_key("reader", "read")
    configure(locked_console, reader)
    assert sign_in(visitor, reader_text).status_code == 303


def test_a_session_ends_with_its_key(locked_console: RunningConsole, visitor: httpx.Client) -> None:
    key, text = make_key("ops", "read")
    configure(locked_console, key)
    sign_in(visitor, text)
    assert visitor.get("/").status_code == 200
    config = locked_console.config
    config.configuration = config.configuration.apply(key.config_key, None)
    assert visitor.get("/").status_code == 303
    # A new key with the same id does not revive the session.
    anew = ApiKey("ops", (secret_from("another text", signs=False),), scopes=frozenset({"read"}))
    configure(locked_console, anew)
    assert visitor.get("/").status_code == 303


def test_a_cookie_that_we_have_not_signed_is_none(visitor: httpx.Client) -> None:
    visitor.get("/sign-in")
    value = visitor.cookies["hifi-console"]
    for forged in ("", "x", "x.y", value[:-1], value + "0", "e30=." + value.partition(".")[2]):
        visitor.cookies.clear()
        visitor.cookies.set("hifi-console", forged)
        assert visitor.get("/").status_code == 303


def test_a_tenant_sees_its_own_streams_and_keys_only(
    locked_console: RunningConsole, visitor: httpx.Client
) -> None:
    key, text = make_key("studio-ops", "read", "admin", tenant="studio")
    other, _ = make_key("ops", "read")
    configure(locked_console, key, other)
    locked_console.dead.letters = [letter("secret-event")]
    locked_console.events.found["orders", "e-1"] = found_event("e-1")
    sign_in(visitor, text)
    for path in PATHS:
        page = visitor.get(path).text
        assert "billing" not in page, path
        assert "secret-event" not in page, path
        assert "acknowledged event" not in page or "players" in page, path
    assert locked_console.events.asked == []
    assert visitor.get("/streams/orders").status_code == 404
    assert visitor.get("/streams/orders/billing").status_code == 404
    assert visitor.get("/streams/players").status_code == 200
    listed = visitor.get("/api/overview").json()
    assert [stream["name"] for stream in listed["streams"]] == ["players"]
    assert ">ops<" not in visitor.get("/keys").text
    assert visitor.get("/keys/revoke?id=ops").status_code == 404
    form = {"csrf": csrf_of(visitor.get("/keys").text), "stream": "orders", "id": "e-1"}
    assert visitor.post("/events/payload", data=form).status_code == 404


def test_a_key_of_one_stream_sees_that_stream_only(
    locked_console: RunningConsole, visitor: httpx.Client
) -> None:
    key, text = make_key("narrow", "read", streams=("nothing",))
    configure(locked_console, key)
    sign_in(visitor, text)
    assert visitor.get("/api/overview").json()["streams"] == []


def test_a_program_reads_the_overview_with_its_key(
    locked_console: RunningConsole, visitor: httpx.Client
) -> None:
    key, text = make_key("robot", "read")
    configure(locked_console, key)
    answer = visitor.get("/api/overview", headers={"authorization": f"Bearer {text}"})
    assert [stream["name"] for stream in answer.json()["streams"]] == ["orders"]
    assert answer.json()["streams"][0]["verdict"] == "SLOW"
    wrong = visitor.get("/api/overview", headers={"authorization": f"Bearer {text}x"})
    assert wrong.status_code == 401


def test_a_reader_changes_nothing_and_reads_no_payload(
    locked_console: RunningConsole, visitor: httpx.Client
) -> None:
    key, text = make_key("reader", "read")
    admin, _ = make_key("admin", "admin")
    configure(locked_console, key, admin)
    locked_console.dead.letters = [letter("e-1")]
    locked_console.events.found["orders", "e-1"] = found_event("e-1")
    sign_in(visitor, text)
    dead = visitor.get("/dead/letters")
    assert "needs a key with the scope admin" in dead.text
    assert visitor.get("/dead/redrive").status_code == 403
    assert visitor.get("/keys/revoke?id=admin").status_code == 403
    event = visitor.get("/events?stream=orders&id=e-1")
    assert "Only keys with the scope admin can see the payload." in event.text
    assert "hello" not in event.text
    form = {"csrf": csrf_of(dead.text), "stream": "orders", "id": "admin"}
    assert visitor.get("/destinations/resume?stream=orders&destination=lake").status_code == 403
    for path in ("/events/payload", "/dead/redrive", "/keys/revoke", "/destinations/resume"):
        assert visitor.post(path, data=form).status_code == 403, path
    assert locked_console.dead.redrives == []
    assert "admin" in locked_console.config.configuration.keys


@pytest.mark.parametrize("path", POSTS)
def test_a_post_without_the_right_token_does_nothing(
    console: RunningConsole, client: httpx.Client, path: str
) -> None:
    key, _ = make_key("ops", "read")
    configure(console, key)
    console.dead.letters = [letter("e-1")]
    client.get("/")
    with httpx.Client(base_url=console.url) as somebody_else:
        theirs = csrf_of(somebody_else.get("/dead/redrive").text)
    fields = {"id": "ops", "confirmed": "1", "stream": "orders"}
    for token in ("", "0" * 64, theirs):
        answer = client.post(path, data={**fields, "csrf": token})
        assert answer.status_code == 403, token
        assert "not from your session" in answer.text
    assert console.dead.redrives == []
    assert "ops" in console.config.configuration.keys


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_post_from_another_site_does_nothing(
    console: RunningConsole, client: httpx.Client, headers: dict[str, str]
) -> None:
    console.dead.letters = [letter("e-1")]
    fields = {"csrf": csrf_of(client.get("/dead/redrive").text), "confirmed": "1"}
    assert client.post("/dead/redrive", data=fields, headers=headers).status_code == 403
    assert console.dead.redrives == []


@pytest.mark.parametrize("path", [*PATHS, "/static/console.js", "/live?path=/", "/nothing"])
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", ""])
def test_another_host_name_gets_no_answer(client: httpx.Client, path: str, host: str) -> None:
    answer = client.get(path, headers={"host": host})
    assert answer.status_code == 421
    assert "orders" not in answer.text


@pytest.mark.parametrize("name", ["x-forwarded-for", "forwarded"])
def test_a_console_that_asks_nobody_serves_no_proxy(
    client: httpx.Client, locked_console: RunningConsole, name: str
) -> None:
    answer = client.get("/", headers={name: "203.0.113.9"})
    assert answer.status_code == 403
    assert "HIFI_OBSERVE_CONSOLE_AUTH=keys" in answer.text
    locked = httpx.get(f"{locked_console.url}/sign-in", headers={name: "203.0.113.9"})
    assert locked.status_code == 200


@pytest.mark.parametrize("path", [*PATHS, "/static/console.js", "/sign-in", "/nothing"])
def test_every_answer_carries_the_headers(client: httpx.Client, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "cache-control" in headers


class _Inline(HTMLParser):
    """Finds what our policy would block: inline scripts and styles, and files of other sites."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "style" or (tag == "script" and "src" not in given):
            self.found.append(tag)
        self.found += [name for name in given if name.startswith("on") or name == "style"]
        for name in ("src", "href", "action"):
            if name in given and not (given[name] or "").startswith(("/", "#")):
                self.found.append(f"{tag} {name}={given[name]}")


@pytest.mark.parametrize("path", [*PATHS, "/sign-in"])
def test_no_page_holds_a_script_a_style_or_a_foreign_address(
    client: httpx.Client, path: str
) -> None:
    parser = _Inline()
    parser.feed(client.get(path).text)
    assert parser.found == []


def test_a_payload_is_hidden_until_an_admin_asks(
    console: RunningConsole, client: httpx.Client
) -> None:
    console.events.found["orders", "e-1"] = found_event("e-1", value=b'{"card":"4242"}')
    page = client.get("/events?stream=orders&id=e-1")
    assert "4242" not in page.text
    fields = {"csrf": csrf_of(page.text), "stream": "orders", "id": "e-1"}
    shown = client.post("/events/payload", data=fields)
    assert "4242" in shown.text


def test_a_redrive_counts_first_and_does_what_was_counted(
    console: RunningConsole, client: httpx.Client
) -> None:
    console.dead.letters = [
        letter("e-1"), letter("e-2"), letter("e-3", reason="deadline"),
    ]  # fmt: skip
    page = client.get("/dead/redrive?reason=status_400")
    assert "Send 2 dead letters again?" in page.text
    fields = {"csrf": csrf_of(page.text), "confirmed": "2", "reason": "status_400"}
    # There is one more dead letter since the count: the console counts again and sends nothing.
    console.dead.letters.append(letter("e-4"))
    again = client.post("/dead/redrive", data=fields)
    assert again.headers["location"] == "/dead/redrive?reason=status_400"
    assert console.dead.redrives == []
    done = client.post("/dead/redrive", data={**fields, "confirmed": "3"}, follow_redirects=True)
    assert "3 sent again." in done.text
    left = [each for each in console.dead.letters if each.place not in console.dead.marked]
    assert [each.event_id for each in left] == ["e-3"]


def test_what_cannot_be_counted_is_not_sent(console: RunningConsole, client: httpx.Client) -> None:
    console.dead.letters = [letter("e-1")]
    csrf = csrf_of(client.get("/dead/redrive").text)
    console.dead.is_whole = False
    assert "narrow the filters" in client.get("/dead/redrive").text
    answer = client.post("/dead/redrive", data={"csrf": csrf, "confirmed": "1"})
    assert answer.headers["location"].startswith("/dead/redrive")
    assert console.dead.redrives == []


def test_signing_out_ends_the_session(
    locked_console: RunningConsole, visitor: httpx.Client
) -> None:
    key, text = make_key("ops", "read")
    configure(locked_console, key)
    sign_in(visitor, text)
    fields = {"csrf": csrf_of(visitor.get("/").text)}
    assert visitor.post("/sign-out", data=fields).headers["location"] == "/sign-in"
    assert visitor.get("/").status_code == 303


def test_odd_requests_get_an_answer_and_no_story(client: httpx.Client) -> None:
    page = client.get("/dead/redrive").text
    csrf = csrf_of(page)
    too_long = {"csrf": csrf, "id": "x" * 20_000}
    assert client.post("/keys/revoke", data=too_long).status_code == 413
    not_text = client.post("/keys/revoke", content=b"\xff\xfe", headers={"x": "y"})
    assert not_text.status_code in {400, 403}
    assert client.get("/static/..%2fapp.py").status_code == 404
    assert client.get("/static/app.py").status_code == 404
    assert client.get("/streams/nothing").status_code == 404
    assert client.get("/events?stream=orders&id=e&before=99999999999999999999").status_code == 200
    assert client.get("/dead/letters?sent=99999999999999999999").status_code == 200
    assert client.delete("/").status_code == 405
    assert now_ms() > 0


def test_a_kafka_that_is_away_is_one_sentence(
    console: RunningConsole, client: httpx.Client
) -> None:
    problem = "Kafka at broker:9092 cannot be read now: try again when it is well."
    console.dead.error = KafkaUnavailableError(problem)
    answer = client.get("/dead/letters")
    assert answer.status_code == 503
    assert problem in answer.text
    # Pages from memory are still shown.
    assert client.get("/").status_code == 200
