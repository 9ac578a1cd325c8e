"""Channels in the console: made, changed, tested and removed by forms, with the right scopes."""

from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser

import httpx
import pytest

from observe.notify.last_message import LastMessage
from shared.config.outside.channel import Channel, Concern
from shared.runtime.channels.settings import ChannelSettings
from shared.runtime.secret_box import new_key
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.component.console.pages.test_console_changes import fields_of
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    csrf_of,
    overview,
    running_console,
)
from tests.support.gateway.trial_answers import observer
from tests.support.servers.scripted_destination import always
from tests.support.servers.scripted_destination import scripted_destination as scripted


@pytest.fixture
def locked_console(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningConsole]:
    """Start a console that requires keys, and its gateway, which can store secrets."""
    monkeypatch.setenv("HIFI_SECRET_KEYS", new_key())
    monkeypatch.setenv("HIFI_GATEWAY_ALLOW_PRIVATE", "true")
    sender = ChannelSettings(allow_private=True).channel_sender
    with running_console("keys") as running, observer(running.store.publisher, sender):
        configure(running)
        running.show(overview())
        yield running


@pytest.fixture
def admin(locked_console: RunningConsole) -> Iterator[httpx.Client]:
    key, text = make_key("shop-root", "admin", tenant="shop")
    configure(locked_console, key)
    with httpx.Client(base_url=locked_console.url) as client:
        sign_in(client, text)
        yield client


def channels_of(console: RunningConsole) -> dict[str, Channel]:
    return dict(console.config.configuration.channels)


class _Form(HTMLParser):
    """The fields that a browser would send for an unchanged form."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._select = ""
        self.feed(page.partition("<main")[2])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name, value = given.get("name") or "", given.get("value") or ""
        match tag:
            case "input" if given.get("type") != "checkbox" or "checked" in given:
                self.fields[name] = value
            case "select":
                self._select = name
            case "option" if self._select not in self.fields or "selected" in given:
                self.fields[self._select] = value


def filled_in(page: str) -> dict[str, str]:
    return _Form(page).fields


def make(admin: httpx.Client, name: str, **fields: str) -> httpx.Response:
    given = {"csrf": csrf_of(admin.get("/channels/new").text), "channel": name, **fields}
    return admin.post("/channels/new", data=given, follow_redirects=True)


def test_a_channel_is_made_changed_tested_and_removed_by_forms(
    locked_console: RunningConsole, admin: httpx.Client
) -> None:
    assert "No channels yet" in admin.get("/channels").text
    with scripted() as good, scripted(always(404)) as gone:
        made = make(admin, "ops", via="webhook", url=good.url, loss="yes")
        assert "The channel is saved." in made.text, made.text
        assert "hifi channels create NAME --via WAY" in admin.get("/channels/new").text
        channel = channels_of(locked_console)["shop/ops"]
        assert (channel.url, [*channel.about]) == (good.url, [Concern.LOSS])
        again = make(admin, "ops", via="webhook", url=good.url)
        assert (again.status_code, "A channel ops already exists." in again.text) == (409, True)
        tested = admin.post(
            "/channels/test", data=fields_of(admin.get("/channels/test?channel=ops").text)
        )
        assert "The message was taken: it answered 200." in tested.text
        fields = filled_in(admin.get("/channels/settings?channel=ops").text)
        assert fields["url"] == good.url
        changed = admin.post(
            "/channels/settings", data=fields | {"url": gone.url}, follow_redirects=True
        )
        assert "The channel is saved." in changed.text
        assert channels_of(locked_console)["shop/ops"].about == {Concern.LOSS}
        # Somebody else has changed the channel since that form was read.
        old = admin.post("/channels/settings", data=fields | {"url": good.url})
        assert (old.status_code, "Somebody else has changed url" in old.text) == (412, True)
        tested = admin.post(
            "/channels/test", data=fields_of(admin.get("/channels/test?channel=ops").text)
        )
        assert "The message was not taken: it answered 404." in tested.text
    removed = admin.post(
        "/channels/remove",
        data=fields_of(admin.get("/channels/remove?channel=ops").text),
        follow_redirects=True,
    )
    assert "The channel is removed." in removed.text
    assert not channels_of(locked_console)


def test_what_is_sealed_is_shown_nowhere_and_stays_when_nothing_is_typed(
    locked_console: RunningConsole, admin: httpx.Client
) -> None:
    assert (
        "sealed addr" in make(admin, "chat", via="slack", secret_url="https://1.1.1.1/hunter2").text
    )
    sealed = channels_of(locked_console)["shop/chat"].secret_url
    page = admin.get("/channels/settings?channel=chat").text
    assert "hunter2" not in page + admin.get("/channels").text
    answer = admin.post("/channels/settings", data=filled_in(page) | {"held": "yes"})
    assert answer.status_code == 303, answer.text
    after = channels_of(locked_console)["shop/chat"]
    assert (after.secret_url, [*after.about]) == (sealed, [Concern.HELD])


@pytest.mark.parametrize(
    ("fields", "says", "status"),
    [
        ({"channel": "", "via": "mail"}, "Enter a name.", 422),
        ({"via": "webhook"}, "a webhook has either a url or a secret_url", 400),
        ({"via": "webhook", "url": "http://169.254.169.254/"}, "public addresses", 422),
        ({"via": "mail", "recipients": "ops"}, "not a mail address", 400),
    ],
)
def test_what_is_wrong_is_said_beside_what_was_typed(
    locked_console: RunningConsole,
    admin: httpx.Client,
    fields: dict[str, str],
    says: str,
    status: int,
) -> None:
    answer = make(admin, fields.pop("channel", "ops"), **fields)
    assert (answer.status_code, says in answer.text) == (status, True), answer.text
    assert not channels_of(locked_console)
    for text in (fields.get("url"), fields.get("recipients")):
        assert text is None or f'value="{text}"' in answer.text


def test_a_stranger_and_who_may_only_look_change_nothing(
    locked_console: RunningConsole, admin: httpx.Client
) -> None:
    make(admin, "ops", via="webhook", url="https://1.1.1.1/in")
    theirs, their_text = make_key("bank-root", "admin", tenant="bank")
    reader, reader_text = make_key("looks", "read", tenant="shop")
    some, some_text = make_key("some", "admin", tenant="shop", streams=("orders",))
    configure(locked_console, theirs, reader, some)
    with httpx.Client(base_url=locked_console.url) as bank:
        sign_in(bank, their_text)
        assert "ops" not in bank.get("/channels").text
        given = {"csrf": csrf_of(bank.get("/channels").text), "channel": "ops", "via": "mail"}
        for what in ("settings", "test", "remove"):
            assert bank.get(f"/channels/{what}?channel=ops").status_code == 404
            assert bank.post(f"/channels/{what}", data=given).status_code == 404
    with httpx.Client(base_url=locked_console.url) as looks:
        sign_in(looks, reader_text)
        assert "https://1.1.1.1/in" in looks.get("/channels").text
        assert "New channel" not in looks.get("/channels").text
        given = {"csrf": csrf_of(looks.get("/channels").text), "channel": "ops", "via": "mail"}
        for what in ("new", "settings", "test", "remove"):
            assert looks.get(f"/channels/{what}?channel=ops").status_code == 403
            assert looks.post(f"/channels/{what}", data=given).status_code == 403
    with httpx.Client(base_url=locked_console.url) as limited:
        sign_in(limited, some_text)
        page = limited.get("/channels").text
        assert "a key for only some streams cannot see them" in page
        assert "New channel" not in page
        assert limited.get("/channels/test?channel=ops").status_code == 404
    assert channels_of(locked_console).keys() == {"shop/ops"}


def test_many_are_shown_in_pages(locked_console: RunningConsole, admin: httpx.Client) -> None:
    known = locked_console.config.configuration
    for at in range(250):
        each = Channel(f"c-{at:03}", "webhook", tenant="shop", url="https://1.1.1.1/in")
        known = known.apply(each.config_key, each.to_json())
    locked_console.config.configuration = known
    good = LastMessage(1_700_000_000_000, is_taken=True, says="it answered 200")
    bad = LastMessage(1_700_000_000_000, is_taken=False, says="it answered 404")
    # The message of another tenant is not shown.
    secret = replace(bad, says="it answered 418")
    locked_console.told = {"shop/c-000": good, "shop/c-001": bad, "bank/c-002": secret}
    page = admin.get("/channels").text
    assert "taken, 11-14 22:13" in page
    assert "not taken, 11-14 22:13: it answered 404" in page
    assert secret.says not in page
    assert "c-099" in page
    assert "c-100" not in page
    assert "c-249" in admin.get("/channels?page=3").text
    assert "page=2" in page
