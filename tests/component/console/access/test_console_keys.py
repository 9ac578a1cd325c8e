"""Keys in the console: made by a form, shown once, rotated and revoked, with the right scopes."""

import html
import re
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from shared.config.access import ApiKey, read_text
from shared.event.times import DAY_MS
from shared.runtime.clock import now_ms
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.component.console.pages.test_console_changes import fields_of
from tests.support.console.browser import Browser
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    csrf_of,
    running_console,
)


@pytest.fixture
def admin(locked_console: RunningConsole) -> Iterator[httpx.Client]:
    """Sign an administrator of all tenants in to a console that requires keys."""
    key, text = make_key("root", "admin")
    configure(locked_console, key)
    with httpx.Client(base_url=locked_console.url) as client:
        sign_in(client, text)
        yield client


def keys_of(console: RunningConsole) -> dict[str, ApiKey]:
    return dict(console.config.configuration.keys)


def secret_on(page: str) -> str:
    (text,) = re.findall(r"hifi[sp]k_[a-z0-9_-]+", page)
    assert isinstance(text, str)
    return text


def test_a_key_is_made_by_a_form_and_its_secret_is_shown_once(
    locked_console: RunningConsole, admin: httpx.Client
) -> None:
    assert 'href="/keys/new"' in admin.get("/keys").text
    asked = admin.get("/keys/new").text
    assert "hifi keys create NAME" in asked
    assert re.findall(r'<input type="checkbox" name="(\w+)" value="yes" checked', asked) == [
        "write"
    ]
    fields = {
        "csrf": csrf_of(asked), "name": "shop", "tenant": "default", "write": "yes", "read": "yes",
        "streams": "orders, players,", "origins": "", "days": "2.5", "must_sign": "yes",
    }  # fmt: skip
    answer = admin.post("/keys/new", data=fields)
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert "shown only once" in answer.text
    assert "Keep it out of pages" in answer.text
    same = "hifi keys create shop --scope write --scope read --stream orders --stream players"
    assert f"{same} --tenant default --must-sign" in answer.text
    made = keys_of(locked_console)["shop"]
    shown = read_text(secret_on(answer.text))
    assert shown is not None
    assert made.secret_of(shown) is not None
    assert made.scopes == {"write", "read"}
    assert made.streams == {"orders", "players"}
    assert made.must_sign
    assert made.expires_at_ms == pytest.approx(now_ms() + 2.5 * DAY_MS, abs=60_000)
    assert shown.text not in admin.get("/keys").text
    # Reloading the page sends the form again: no key is made, and no text is shown.
    again = admin.post("/keys/new", data=fields)
    assert (again.status_code, "A key shop already exists." in again.text) == (409, True)
    assert keys_of(locked_console)["shop"] == made
    with httpx.Client(base_url=locked_console.url) as shop:
        assert sign_in(shop, shown.text).status_code == 303


def test_what_is_wrong_with_a_key_is_said_beside_what_was_typed(
    locked_console: RunningConsole, admin: httpx.Client
) -> None:
    before = keys_of(locked_console)
    fields = {"csrf": csrf_of(admin.get("/keys/new").text), "name": "page", "write": "yes"}
    for wrong, says, status in (
        ({"name": ""}, "Enter a name.", 422),
        ({"name": "Not <a> name"}, "name", 400),
        ({"write": ""}, "scopes", 400),
        ({"streams": "a b"}, "streams", 400),
        ({"origins": "shop"}, "origin", 400),
        ({"origins": "https://shop.example", "admin": "yes"}, "a browser key may only write", 400),
        ({"days": "soon"}, "Days must be a number", 422),
        ({"days": "nan"}, "Days must be a number", 422),
        ({"days": "1e300"}, "Days must be a number", 422),
        ({"days": "-1"}, "Days must be a number", 422),
    ):
        answer = admin.post("/keys/new", data=fields | wrong)
        assert (answer.status_code, says in answer.text) == (status, True), wrong
        for text in filter(None, wrong.values()):
            assert f'value="{html.escape(text)}"' in answer.text, wrong
    assert keys_of(locked_console) == before
    answer = admin.post("/keys/new", data=fields | {"origins": "https://shop.example"})
    assert keys_of(locked_console)["page"].kind == "browser"
    assert "--origin https://shop.example" in answer.text
    assert "Web pages of its origins may contain this secret" in answer.text


def test_a_key_gets_a_second_secret_until_its_rotation_ends(
    locked_console: RunningConsole, admin: httpx.Client
) -> None:
    key, old = make_key("shop", "read")
    configure(locked_console, key)
    assert "/keys/retire?id=shop" not in admin.get("/keys").text
    asked = admin.get("/keys/rotate?id=shop").text
    assert "hifi keys rotate shop" in asked
    answer = admin.post("/keys/rotate", data=fields_of(asked))
    new = secret_on(answer.text)
    rotated = keys_of(locked_console)["shop"]
    for text in (old, new):
        shown = read_text(text)
        assert shown is not None
        assert rotated.secret_of(shown) is not None
    # The page shows the key before its rotation: sending its form again makes no third text.
    assert admin.post("/keys/rotate", data=fields_of(asked)).status_code == 412
    asked = admin.get("/keys/rotate?id=shop").text
    assert "The older of its two present secrets will be refused" in asked
    assert "/keys/retire?id=shop" in admin.get("/keys").text
    asked = admin.get("/keys/retire?id=shop").text
    assert "hifi keys rotate shop --finish" in asked
    after = admin.post("/keys/retire", data=fields_of(asked), follow_redirects=True)
    assert "Only its newest secret is valid now." in after.text
    for text, is_good in ((old, False), (new, True)):
        with httpx.Client(base_url=locked_console.url) as shop:
            assert (sign_in(shop, text).status_code == 303) is is_good


def test_an_admin_revokes_a_key_but_not_its_own(
    locked_console: RunningConsole, admin: httpx.Client
) -> None:
    configure(locked_console, make_key("other", "write")[0])
    asked = admin.get("/keys/revoke?id=other").text
    assert "hifi keys revoke other" in asked
    fields = fields_of(asked)
    assert "revoked" in admin.post("/keys/revoke", data=fields, follow_redirects=True).text
    assert set(keys_of(locked_console)) == {"root"}
    assert "/keys/revoke?id=root" not in admin.get("/keys").text
    assert admin.post("/keys/revoke", data=fields | {"id": "root"}).status_code == 403


def test_who_is_in_charge_of_all_makes_keys_for_any_tenant_and_others_for_their_own(
    locked_console: RunningConsole, admin: httpx.Client
) -> None:
    theirs, text = make_key("studio-root", "admin", tenant="studio")
    configure(locked_console, theirs)
    fields = {"csrf": csrf_of(admin.get("/keys/new").text), "name": "their-shop", "write": "yes"}
    admin.post("/keys/new", data=fields | {"tenant": "studio"})
    assert keys_of(locked_console)["their-shop"].tenant == "studio"
    assert "their-shop" in admin.get("/keys").text
    with httpx.Client(base_url=locked_console.url) as studio:
        sign_in(studio, text)
        asked = studio.get("/keys/new").text
        assert 'name="tenant"' not in asked
        fields = {"csrf": csrf_of(asked), "name": "more", "write": "yes"}
        refused = studio.post("/keys/new", data=fields | {"tenant": "default"})
        assert (refused.status_code, "your own tenant only" in refused.text) == (403, True)
        # Names of keys are unique across tenants.
        assert studio.post("/keys/new", data=fields | {"name": "root"}).status_code == 409
        studio.post("/keys/new", data=fields)
        assert keys_of(locked_console)["more"].tenant == "studio"
        for what in ("rotate", "retire", "revoke"):
            assert studio.get(f"/keys/{what}?id=root").status_code == 404, what
            answer = studio.post(f"/keys/{what}", data=fields | {"id": "root"})
            assert answer.status_code == 404, what
        assert "root" in keys_of(locked_console)


def test_a_reader_makes_and_rotates_no_key(locked_console: RunningConsole) -> None:
    reader, text = make_key("reader", "read")
    configure(locked_console, reader)
    before = keys_of(locked_console)
    with httpx.Client(base_url=locked_console.url) as visitor:
        sign_in(visitor, text)
        listed = visitor.get("/keys").text
        assert "/keys/new" not in listed
        assert "/keys/rotate" not in listed
        fields = {"csrf": csrf_of(listed), "name": "more", "read": "yes", "id": "reader"}
        for what in ("new", "rotate", "retire", "revoke"):
            assert visitor.get(f"/keys/{what}?id=reader").status_code == 403, what
            assert visitor.post(f"/keys/{what}", data=fields).status_code == 403, what
    assert keys_of(locked_console) == before


def test_a_key_is_made_by_keyboard_alone(console: RunningConsole, browser: Browser) -> None:
    with browser.page() as tab:
        tab.open(f"{console.url}/keys/new")
        tab.come_to("name")
        tab.type("shop")
        tab.come_to("read")
        tab.key(" ", text=" ")
        tab.come_to("Create")
        tab.leave(lambda: tab.key("Enter", text="\r"))
        assert tab.text("h1") == "shop is created"
        assert "shown only once" in tab.text("main")
        tab.come_to(tab.text(".secret"))
        assert tab.complaints() == []
    assert keys_of(console)["shop"].scopes == {"read", "write"}


def test_the_page_says_when_each_key_was_used_and_whether_an_older_secret_still_is(
    locked_console: RunningConsole, admin: httpx.Client
) -> None:
    shop, old = make_key("shop", "read")
    reader, text = make_key("reader", "read")
    configure(locked_console, shop, reader)
    assert rows_of(admin)["shop"] == "not within a year"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\dZ", rows_of(admin)["root"])
    admin.post("/keys/rotate", data=fields_of(admin.get("/keys/rotate?id=shop").text))
    assert rows_of(admin)["shop"].endswith("the older secret: not within a year")
    headers = {"authorization": f"Bearer {old}"}
    assert locked_console.gateway.client.get("/v1/streams", headers=headers).status_code == 200
    assert rows_of(admin)["shop"].count("Z") == 2
    # The gateway shows the last use only to admins.
    with httpx.Client(base_url=locked_console.url) as visitor:
        sign_in(visitor, text)
        assert rows_of(visitor)["shop"] == "\u2013"


def test_without_a_gateway_the_page_is_there() -> None:
    with running_console("off", gateway="http://127.0.0.1:9") as running:
        configure(running, make_key("shop", "write")[0])
        with httpx.Client(base_url=running.url) as client:
            assert rows_of(client) == {"shop": "\u2013"}


def test_of_ten_thousand_keys_so_many_are_shown_at_a_time(
    console: RunningConsole, client: httpx.Client
) -> None:
    shop, _ = make_key("shop", "write")
    known = console.config.configuration
    many = {f"key-{n:04}": replace(shop, id=f"key-{n:04}") for n in range(9_999)}
    console.config.configuration = replace(known, keys={**many, "shop": shop})
    assert "10,000 keys; 1 to 100 are shown, by name." in client.get("/keys").text
    assert list(rows_of(client, "/keys?page=100"))[-1] == "shop"
    assert "9,999 keys match" in client.get("/keys?q=key-").text
    assert "No key matches." in client.get("/keys?only=rotating").text
    page = client.get("/keys?tenant=default&page=2").text
    assert 'name="tenant" value="default"' in page
    assert "/keys?tenant=default&amp;page=3" in page


def rows_of(client: httpx.Client, path: str = "/keys") -> dict[str, str]:
    """Return the row of each key on the page, with its last use."""
    page = client.get(path).text
    rows = re.findall(r"<tr><th[^>]*><code>([^<]+)</code></th>(.*?)</tr>", page)
    return {name: re.findall(r"<td[^>]*>(.*?)</td>", rest)[4] for name, rest in rows}
