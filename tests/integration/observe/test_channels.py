"""Channels over a real Kafka: created, tried, changed and removed in a browser, and notified."""

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from deploy.local.cluster import Cluster
from deploy.local.ports import pick_free
from shared.config.configuration import Stream
from shared.config.destination import Destination
from shared.config.signing import signing_secret
from shared.event.record import RecordOut
from shared.event.topics import STATE
from shared.flow.flow import Flow, FlowState
from shared.flow.flow_record import FlowRecord
from shared.runtime.clock import now_ms
from shared.runtime.secret_box import new_key
from tests.component.console.access.test_console_access import make_key
from tests.integration.observe.test_console_kafka import event, stored, write
from tests.support.console.browser import Browser, Tab
from tests.support.deploy.stack_fixtures import fetch, wait_until
from tests.support.gateway.gateway_process import running as gateway_running
from tests.support.kafka.config_records import write_config
from tests.support.servers.mail_server import SENDER, MailBox, mail_server
from tests.support.servers.scripted_destination import ScriptedDestination
from tests.support.servers.scripted_destination import scripted_destination as scripted
from tests.support.servers.slack_server import SlackRules

pytestmark = pytest.mark.integration

SIGNING = signing_secret(b"s" * 32)
RUNBOOK = "/runbooks/HifiDestinationHeld"


@dataclass
class AlertedHifi:
    """A Hifi with a tenant whose destination is held, and the receivers of that tenant's alerts."""

    url: str
    key: str
    stream: str
    webhook: ScriptedDestination
    slack: ScriptedDestination
    mail: MailBox


@pytest.fixture
def told(kafka: Cluster, tmp_path: Path) -> Iterator[AlertedHifi]:
    # Other tests on this Kafka and this tenant hear nothing of each other.
    tenant = f"t-{uuid.uuid4().hex[:12]}"
    key, text = make_key(f"{tenant}-root", "admin", tenant=tenant)
    metrics_port, port = pick_free(2)
    url = f"http://127.0.0.1:{port}"
    held = FlowRecord(Flow(held_at_ms=now_ms()), state=FlowState.HELD, since_ms=now_ms())
    rows = [stored(event(tenant, 0)), RecordOut(STATE, f"{tenant}/to".encode(), held.to_json())]
    write(kafka, tenant, rows)
    to = Destination(tenant, "to", "https://to.example/hook")
    asyncio.run(write_config(kafka.bootstrap_servers, [Stream(tenant, tenant=tenant), to, key]))
    with ExitStack() as parts:
        mail = parts.enter_context(mail_server())
        webhook = parts.enter_context(scripted())
        slack = parts.enter_context(scripted(SlackRules()))
        both = {"HIFI_SECRET_KEYS": new_key()}
        # Gateways know that a mail server is configured, but cannot reach this one.
        ours = {
            "HIFI_GATEWAY_AUTH": "keys",
            "HIFI_GATEWAY_ALLOW_PRIVATE": "true",
            "HIFI_MAIL_HOST": "mail.example",
        }
        theirs = {
            "HIFI_MAIL_HOST": "127.0.0.1",
            "HIFI_MAIL_PORT": str(mail.port),
            "HIFI_MAIL_TLS": "off",
            "HIFI_MAIL_FROM": SENDER,
        }
        gateway = parts.enter_context(gateway_running(kafka.bootstrap_servers, **both, **ours))
        settings = {
            "BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "FOLDER": str(tmp_path / "observe"),
            "IS_AUDIT_ON": "false",
            "ALLOW_PRIVATE": "true",
            "METRICS_PORT": str(metrics_port),
            "CONSOLE_PORT": str(port),
            "CONSOLE_AUTH": "keys",
            "CONSOLE_URL": url,
            "CONSOLE_GATEWAY": gateway.url,
        }
        parts.enter_context(_observe(both | theirs, settings, tmp_path / "log"))
        yield AlertedHifi(url, text, tenant, webhook, slack, mail)


@contextmanager
def _observe(both: dict[str, str], settings: dict[str, str], log: Path) -> Iterator[None]:
    env = os.environ | both | {f"HIFI_OBSERVE_{name}": value for name, value in settings.items()}
    with log.open("w") as lines:
        running = subprocess.Popen([sys.executable, "-m", "observe"], env=env, stderr=lines)
    try:
        sign_in = f"http://127.0.0.1:{settings['CONSOLE_PORT']}/sign-in"
        wait_until(lambda: bool(fetch(sign_in)), what=lambda: log.read_text()[-800:])
        yield
        running.terminate()
        assert running.wait(30) == 0, "it exited with an error"
    finally:
        running.kill()
        running.wait(30)


def test_a_tenant_sets_up_its_channels_in_a_browser_and_is_told(
    told: AlertedHifi, browser: Browser
) -> None:
    with browser.page() as tab:
        tab.send("Emulation.setScriptExecutionDisabled", value=True)
        tab.open(f"{told.url}/sign-in?next=/channels")
        submit(tab, key=told.key)
        assert "No channels yet" in tab.text("main")
        secret = {"signing_secret": SIGNING}
        make(tab, told, channel="hook", via="webhook", url=told.webhook.url, held="yes", **secret)
        assert "The channel is saved." in tab.text("main")
        make(tab, told, channel="mail", via="mail", recipients="ops@shop.example")
        # The address is sealed, and no page shows it again.
        make(tab, told, channel="chat", via="slack", secret_url=told.slack.url)
        assert "a sealed address" in tab.text("main")
        for page in ("/channels", "/channels/settings?channel=chat", "/changes"):
            tab.open(f"{told.url}{page}")
            whole = tab.run("document.documentElement.outerHTML")
            assert told.slack.url not in whole
            assert SIGNING not in whole

        is_told_by_all(told)
        tab.open(f"{told.url}/channels")
        assert tab.text("main").count("taken, ") == 3
        assert "not taken" not in tab.text("main")

        tab.open(f"{told.url}/channels/test?channel=hook")
        assert "hifi channels test hook" in tab.text("main")
        submit(tab)
        assert "The message was taken: it answered 200." in tab.text("main")
        assert verified(told, -1)["type"] == "hifi.notice.try"
        tab.open(f"{told.url}/channels/test?channel=mail")
        submit(tab)
        assert "The message was taken: the mail server accepted it." in tab.text("main")

        # The address changes, and the sealed secret stays.
        tab.open(f"{told.url}/channels/settings?channel=hook")
        submit(tab, url=f"{told.webhook.url}/there")
        tab.open(f"{told.url}/channels/test?channel=hook")
        submit(tab)
        assert verified(told, -1)["type"] == "hifi.notice.try"

        for name in ("hook", "mail", "chat"):
            tab.open(f"{told.url}/channels/remove?channel={name}")
            submit(tab)
            assert "The channel is removed." in tab.text("main")
        assert "No channels yet" in tab.text("main")


def is_told_by_all(told: AlertedHifi) -> None:
    """The destination is held: each channel reports this in its own form, for this tenant only."""
    to = f"{told.stream}/to"
    for at in (told.webhook, told.slack):
        wait_until(partial(bool, at.accepted), what="the channel is notified")
    (said,) = verified(told, 0)["begun"]
    assert (said["about"], f"{said['stream']}/{said['destination']}") == ("held", to)
    assert said["runbook"] == f"{told.url}{RUNBOOK}"
    text = json.loads(told.slack.accepted[0].body)["text"]
    assert f"<{told.url}/streams/{to}|console>" in text
    assert text.startswith("*Hifi: 1 thing needs a look*")
    wait_until(lambda: bool(told.mail.taken), what="the mail is there")
    (mail,) = told.mail.taken
    assert (mail.to, mail.mail["subject"]) == (
        ["ops@shop.example"],
        "Hifi: 1 thing needs a look",
    )
    assert f"{to}: HELD" in mail.mail.get_content()
    assert f"{told.url}{RUNBOOK}" in mail.mail.get_content()


def verified(told: AlertedHifi, number: int) -> dict[str, Any]:
    """Return the content of a request to the webhook, once its signature is verified."""
    request = told.webhook.accepted[number]
    said: dict[str, Any] = Webhook(SIGNING).verify(request.body, request.headers)
    return said


def make(tab: Tab, told: AlertedHifi, **fields: str) -> None:
    tab.open(f"{told.url}/channels/new")
    submit(tab, **fields)


def submit(tab: Tab, **fields: str) -> None:
    """Fill in the form of the page, and submit it with its button."""
    for name, value in fields.items():
        field = f"document.querySelector('main [name={name}]')"
        is_box = tab.run(f"{field}.type === 'checkbox'")
        set_to = "checked = true" if is_box else f"value = {json.dumps(value)}"
        tab.run(f"{field}.{set_to}")
    tab.click_and_load("main form[method=post] button")
