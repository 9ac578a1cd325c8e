"""Channels over HTTP: set, shown without secrets, checked, tested, and separate by tenant."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook
from typer.testing import CliRunner, Result

from deploy.cli.commands import app
from gateway.app import described
from gateway.settings import Settings
from shared.config.access import ENTROPY_BYTES, ApiKey, Scope, Tenant, new_text, secret_from
from shared.config.configuration import Configuration
from shared.config.credentials import secrets_of
from shared.config.signing import signing_secret
from shared.runtime.channels.settings import ChannelSettings
from shared.runtime.secret_box import SecretBox, new_key
from shared.runtime.setup_error import NoAnswerError
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway
from tests.support.gateway.trial_answers import observer
from tests.support.servers.mail_server import SENDER, MailBox, mail_server
from tests.support.servers.scripted_destination import always
from tests.support.servers.scripted_destination import scripted_destination as scripted

PATH = "/v1/channels/ops"
KEY = new_key()
BOX = SecretBox([KEY])
SIGNING = signing_secret(b"s" * 32)
WEBHOOK = {"via": "webhook", "url": "https://1.1.1.1/in", "signing_secrets": [SIGNING]}
SLACK = {"via": "slack", "secret_url": "https://1.1.1.1/services/T0/hunter2"}
MAIL = {"via": "mail", "recipients": ["ops@shop.example"]}
KEYS = {
    name: new_text(kind="secret", key_id=name, entropy=bytes(ENTROPY_BYTES))
    for name in ("ours", "theirs", "some", "reader")
}


@pytest.fixture
def config() -> FixedConfig:
    admin: frozenset[Scope] = frozenset({"admin", "read"})
    secrets = {name: (secret_from(text, signs=False),) for name, text in KEYS.items()}
    keys = [
        ApiKey("ours", secrets["ours"], tenant="shop", scopes=admin),
        ApiKey("theirs", secrets["theirs"], tenant="bank", scopes=admin),
        ApiKey("some", secrets["some"], tenant="shop", scopes=admin, streams=frozenset({"orders"})),
        ApiKey("reader", secrets["reader"], tenant="shop", scopes=frozenset({"read"})),
    ]
    return FixedConfig(Configuration(keys={key.id: key for key in keys}))


@pytest.fixture
def mail() -> Iterator[MailBox]:
    with mail_server() as box:
        yield box


@pytest.fixture
def gateway(
    config: FixedConfig, mail: MailBox, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningGateway]:
    monkeypatch.setenv("HIFI_SECRET_KEYS", KEY)
    for name, value in {"HOST": "127.0.0.1", "FROM": SENDER, "TLS": "off"}.items():
        monkeypatch.setenv(f"HIFI_MAIL_{name}", value)
    monkeypatch.setenv("HIFI_MAIL_PORT", str(mail.port))
    settings, publisher = Settings(auth="keys", allow_private=True), FakePublisher([])
    sender = ChannelSettings(allow_private=True).channel_sender
    with (
        running_gateway(publisher, config, settings) as running,
        observer(publisher, sender),
    ):
        running.client.headers["authorization"] = f"Bearer {KEYS['ours']}"
        yield running


def as_key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name]}"}


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def opened(config: FixedConfig, name: str) -> dict[str, str]:
    """Return the secrets that observe would use."""
    channel = config.configuration.channels[name]
    return {
        path: BOX.unseal(sealed, owner=channel.owner)
        for path, sealed in secrets_of(channel.to_fields())
    }


def test_a_channel_is_made_shown_listed_changed_and_removed(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    assert code(gateway.client.get(PATH)) == (404, "unknown_channel")
    made = gateway.client.put(PATH, json=WEBHOOK)
    assert made.status_code == 201, made.text
    assert SIGNING not in made.text + config.configuration.channels["shop/ops"].to_json().decode()
    assert opened(config, "shop/ops") == {"signing_secrets.0": SIGNING}
    shown = gateway.client.get(PATH)
    assert (shown.json(), shown.headers["etag"]) == (made.json(), made.headers["etag"])
    # The answer of a GET can be PUT as it is, and an omitted secret stays.
    assert gateway.client.put(PATH, json=shown.json()).headers["etag"] == made.headers["etag"]
    changed = gateway.client.put(
        PATH, json={"via": "webhook", "url": "https://1.1.1.1/", "about": ["loss"]}
    )
    assert changed.json()["about"] == ["loss"]
    assert opened(config, "shop/ops") == {"signing_secrets.0": SIGNING}
    assert gateway.client.get("/v1/channels").json() == {"channels": [changed.json()]}
    assert gateway.client.delete(PATH).status_code == 204
    assert code(gateway.client.delete(PATH)) == (404, "unknown_channel")
    changes = gateway.client.get("/v1/changes", params={"kind": "channel"}).json()["changes"]
    deeds = [(each["name"], each["did"]) for each in changes]
    assert deeds == [("shop/ops", did) for did in ("deleted", "changed", "created")]


def test_it_can_go_another_way_and_to_another_address(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    assert gateway.client.put(PATH, json=SLACK).status_code == 201
    assert "hunter2" not in gateway.client.get(PATH).text
    assert gateway.client.put(PATH, json={"via": "slack"}).status_code == 200
    assert opened(config, "shop/ops") == {"secret_url": SLACK["secret_url"]}
    for given in (MAIL, WEBHOOK, SLACK, {**SLACK, "via": "webhook"}, WEBHOOK, MAIL):
        answer = gateway.client.put(PATH, json=given)
        assert answer.status_code == 200, answer.text
        assert answer.json()["via"] == given["via"]


@pytest.mark.parametrize(
    ("given", "refused", "pointer"),
    [
        ({"via": "webhook", "url": "http://169.254.169.254/"}, "target_forbidden", "/url"),
        ({"via": "slack", "secret_url": "http://[fe80::1]/"}, "target_forbidden", "/secret_url"),
        ({"via": "slack", "secret_url": "hunter2"}, "bad_object", "/secret_url"),
        ({"via": "slack", "secret_url": "https://me:hunter2@a"}, "bad_object", "/secret_url"),
        ({**WEBHOOK, "signing_secrets": ["hunter2"]}, "bad_object", "/signing_secrets/0"),
        ({**WEBHOOK, "colour": "red"}, "bad_object", "/colour"),
        ({**WEBHOOK, "tenant": "bank"}, "bad_object", "/tenant"),
        ({"via": "slack", "secret_url": {"sealed": "0" * 12}}, "secret_changed", "/secret_url"),
        ({**MAIL, "recipients": ["a@b.example\nbcc: c@d.example"]}, "bad_object", None),
        ({"via": "pager"}, "bad_object", "/via"),
    ],
)
def test_what_cannot_be_is_refused(
    gateway: RunningGateway, given: dict[str, Any], refused: str, pointer: str | None
) -> None:
    answer = gateway.client.put(PATH, json=given)
    assert answer.json()["code"] == refused
    assert pointer is None or answer.json()["pointer"] == pointer
    assert "hunter2" not in answer.text
    assert gateway.client.get("/v1/channels").json() == {"channels": []}


def test_a_private_address_needs_the_operators_leave(
    config: FixedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIFI_SECRET_KEYS", KEY)
    with running_gateway(FakePublisher([]), config, Settings(auth="keys")) as gateway:
        gateway.client.headers["authorization"] = f"Bearer {KEYS['ours']}"
        given = {"via": "webhook", "url": "http://10.0.0.1/"}
        assert code(gateway.client.put(PATH, json=given)) == (422, "target_forbidden")
        # Without a mail server a channel for mail is refused.
        no_mail = gateway.client.put(PATH, json=MAIL)
        assert "HIFI_MAIL_HOST" in no_mail.json()["detail"]


def test_a_channel_is_its_tenants_alone(gateway: RunningGateway, config: FixedConfig) -> None:
    gateway.client.put(PATH, json=WEBHOOK)
    theirs = as_key("theirs")
    for method, path in (("GET", PATH), ("DELETE", PATH), ("POST", f"{PATH}/test")):
        asked = gateway.client.request(method, path, headers=theirs)
        assert code(asked) == (404, "unknown_channel")
        asked = gateway.client.request(method, path, headers=as_key("some"))
        assert code(asked) == (403, "scope_missing")
    assert gateway.client.get("/v1/channels", headers=theirs).json() == {"channels": []}
    assert gateway.client.get("/v1/channels", headers=as_key("some")).json() == {"channels": []}
    assert code(gateway.client.put(PATH, json=WEBHOOK, headers=as_key("some")))[0] == 403
    # Names and placeholders of secrets are valid within their tenant only.
    placeholder = gateway.client.get(PATH).json()["signing_secrets"]
    copied = {**WEBHOOK, "signing_secrets": placeholder}
    assert code(gateway.client.put(PATH, json=copied, headers=theirs)) == (409, "secret_changed")
    assert gateway.client.put(PATH, json=WEBHOOK, headers=theirs).status_code == 201
    assert {*config.configuration.channels} == {"shop/ops", "bank/ops"}
    # A reader sees channels, but may not change or test them.
    assert gateway.client.get(PATH, headers=as_key("reader")).status_code == 200
    for method, path in (("PUT", PATH), ("DELETE", PATH), ("POST", f"{PATH}/test")):
        asked = gateway.client.request(method, path, json=WEBHOOK, headers=as_key("reader"))
        assert code(asked) == (403, "scope_missing")


def test_how_many_a_tenant_has_is_bounded(gateway: RunningGateway, config: FixedConfig) -> None:
    tenants = {"shop": Tenant("shop", channels_max=1)}
    config.configuration = Configuration(keys=config.configuration.keys, tenants=tenants)
    assert gateway.client.put(PATH, json=WEBHOOK).status_code == 201
    assert gateway.client.put(PATH, json=MAIL).status_code == 200
    more = gateway.client.put("/v1/channels/more", json=WEBHOOK)
    assert (code(more), more.json()["bound"]) == ((409, "bound_reached"), "channels")
    other = gateway.client.put("/v1/channels/more", json=WEBHOOK, headers=as_key("theirs"))
    assert other.status_code == 201


def test_a_test_says_what_came_back(gateway: RunningGateway, mail: MailBox) -> None:
    with scripted() as good, scripted(always(404)) as gone:
        given = {"via": "webhook", "url": good.url, "signing_secrets": [SIGNING]}
        gateway.client.put(PATH, json=given)
        answer = gateway.client.post(f"{PATH}/test")
        assert (answer.status_code, answer.json()) == (
            200,
            {"is_taken": True, "says": "it answered 200"},
        )
        request = good.accepted[0]
        said = Webhook(SIGNING).verify(request.body, request.headers)
        assert said["type"] == "hifi.notice.try"
        gateway.client.put(PATH, json={"via": "slack", "secret_url": gone.url})
        answer = gateway.client.post(f"{PATH}/test")
        assert answer.json() == {"is_taken": False, "says": "it answered 404"}
        assert set(json.loads(gone.requests[0].body)) == {"text"}
    gateway.client.put(PATH, json=MAIL)
    answer = gateway.client.post(f"{PATH}/test")
    assert answer.json() == {"is_taken": True, "says": "the mail server accepted it"}
    (taken,) = mail.taken
    assert taken.mail["subject"] == "Hifi: this is a test of channel ops. There is no trouble."


def test_without_an_observer_nobody_says_that_a_channel_works(
    config: FixedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.fleet.trial_news.ANSWER_WITHIN_S", 0.2)
    monkeypatch.setenv("HIFI_SECRET_KEYS", KEY)
    with running_gateway(FakePublisher([]), config, Settings(auth="keys")) as gateway:
        gateway.client.headers["authorization"] = f"Bearer {KEYS['ours']}"
        gateway.client.put(PATH, json=WEBHOOK)
        answer = gateway.client.post(f"{PATH}/test")
    assert (*code(answer), answer.headers["retry-after"]) == (503, "not_tried", "5")
    assert "observer" in answer.json()["detail"]


def test_tests_are_rationed_for_each_tenant(gateway: RunningGateway, mail: MailBox) -> None:
    for headers in (as_key("ours"), as_key("theirs")):
        gateway.client.put(PATH, json=MAIL, headers=headers)
        said = [gateway.client.post(f"{PATH}/test", headers=headers) for _ in range(11)]
        assert [answer.status_code for answer in said] == [200] * 10 + [429]
        assert code(said[-1]) == (429, "channel_test_rate")
        assert 300 < int(said[-1].headers["retry-after"]) <= 360
    assert len(mail.taken) == 20


def test_secrets_are_sealed_anew_with_the_newest_key(
    config: FixedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIFI_SECRET_KEYS", KEY)
    admin = ApiKey("op", (secret_from(KEYS["ours"], signs=False),), scopes=frozenset({"admin"}))
    with running_gateway(FakePublisher([]), config, Settings(auth="keys")) as gateway:
        gateway.client.headers["authorization"] = f"Bearer {KEYS['ours']}"
        gateway.client.put(PATH, json={**SLACK, "via": "webhook", "signing_secrets": [SIGNING]})
    newest = new_key()
    monkeypatch.setenv("HIFI_SECRET_KEYS", f"{newest},{KEY}")
    known = config.configuration
    text = new_text(kind="secret", key_id="op", entropy=bytes(ENTROPY_BYTES))
    admin = ApiKey("op", (secret_from(text, signs=False),), scopes=frozenset({"admin"}))
    config.configuration = Configuration(keys={"op": admin}, channels=known.channels)
    with running_gateway(FakePublisher([]), config, Settings(auth="keys")) as gateway:
        headers = {"authorization": f"Bearer {text}"}
        answer = gateway.client.post("/v1/secrets:rotate", headers=headers).json()
    assert answer == {"sealed_anew": 2, "already_newest": 0, "not_opened": []}
    channel, newest_box = config.configuration.channels["shop/ops"], SecretBox([newest])
    assert channel.secret_url is not None
    assert newest_box.unseal(channel.secret_url, owner=channel.owner) == SLACK["secret_url"]


def test_a_change_may_be_tried_first(gateway: RunningGateway) -> None:
    answer = gateway.client.put(PATH, json={**WEBHOOK, "dry_run": True})
    assert answer.status_code == 201
    assert code(gateway.client.get(PATH)) == (404, "unknown_channel")


def test_it_is_described() -> None:
    put = described(Settings())["paths"]["/v1/channels/{channel}"]["put"]
    sent = put["requestBody"]["content"]["application/json"]["schema"]
    assert {"via", "url", "secret_url", "recipients", "about", "dry_run"} <= set(sent["properties"])
    assert sent["required"] == ["via"]


def hifi(gateway: RunningGateway, *arguments: str) -> Result:
    return CliRunner().invoke(
        app,
        ["channels", *arguments],
        env={"HIFI_GATEWAY": gateway.url, "HIFI_API_KEY": KEYS["ours"]},
    )


def test_the_command_makes_changes_tests_and_removes_a_channel(
    gateway: RunningGateway, mail: MailBox, tmp_path: Path
) -> None:
    made = hifi(gateway, "create", "ops", "--via", "mail", "--to", "ops@shop.example")
    assert made.exit_code == 0, made.output
    assert "already" in str(hifi(gateway, "create", "ops", "--via", "mail").exception)
    hifi(gateway, "update", "ops", "--about", "loss", "--about", "held")
    shown = json.loads(hifi(gateway, "get", "ops").stdout)
    assert (shown["recipients"], shown["about"]) == (["ops@shop.example"], ["held", "loss"])
    listed = hifi(gateway, "list").stdout.splitlines()[1].split()
    assert listed == ["ops", "mail", "ops@shop.example", "held,", "loss"]
    assert hifi(gateway, "test", "ops").stdout == "ops: the mail server accepted it\n"
    assert len(mail.taken) == 1
    with scripted(always(404)) as gone:
        secret = tmp_path / "slack.json"
        secret.write_text(json.dumps({"secret_url": gone.url}))
        hifi(gateway, "put", "chat", "--via", "slack", "--settings", str(secret))
        tried = hifi(gateway, "test", "chat")
        assert tried.stdout == "chat: it answered 404\n"
        assert isinstance(tried.exception, NoAnswerError)
        assert gone.url not in hifi(gateway, "list").stdout
    assert hifi(gateway, "delete", "ops", "--yes").exit_code == 0
    assert [each["name"] for each in gateway.client.get("/v1/channels").json()["channels"]] == [
        "chat"
    ]
