"""Notices over real HTTP: signed, gathered, retried, independent of other channels, sent once."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import wraps
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from observe.notify import notifier as notifying
from observe.notify.messages import Links
from observe.notify.notifier import FILE, Notifier
from shared.config.addresses import Address
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.config.outside.channel import Channel
from shared.proof.overview import AuditHealth, Overview, StreamVerdict, StreamView
from shared.runtime.channels.mail import MailAllowance, Mailer
from shared.runtime.channels.message import trial_message
from shared.runtime.channels.posting import ChannelPoster
from shared.runtime.channels.sending import ChannelSender
from shared.runtime.clock import now_ms
from shared.runtime.resolver import Resolver
from shared.runtime.secret_box import SecretBox, new_key
from tests.support.console.console_fixtures import destination_view
from tests.support.servers.mail_server import MailBox, mail_server
from tests.support.servers.scripted_destination import Reply, ScriptedDestination, always, in_turn
from tests.support.servers.scripted_destination import scripted_destination as scripted

SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
BOX = SecretBox([new_key()])


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*given: Any, **named: Any) -> None:
        asyncio.run(test(*given, **named))

    return run


class Hifi:
    """Two tenants with destinations in the states that a test sets."""

    def __init__(self, count: int = 2) -> None:
        self.verdict = StreamVerdict.HELD
        self.problem = ""
        self.looks = 0
        self.streams = ["orders", "ledger"]
        self.count = count
        self.channels: dict[str, Channel] = {}

    def overview(self) -> Overview:
        self.looks += 1
        views = []
        for name in self.streams:
            to = [
                replace(
                    destination_view(name, f"to-{at}", at_ms=now_ms()),
                    verdict=self.verdict,
                    reason="it answered 401 to all",
                )
                for at in range(self.count)
            ]
            views.append(StreamView(name, self.verdict, "", 0, None, tuple(to)))
        audit = AuditHealth(last_run_ms=1, problem="")
        return Overview(now_ms(), tuple(views), audit, self.problem)

    def configuration(self) -> Configuration:
        to = [
            Destination(stream=stream, name=f"to-{at}", url="https://a.example/")
            for stream in self.streams
            for at in range(self.count)
        ]
        streams = {
            "orders": Stream(name="orders", tenant="shop"),
            "ledger": Stream(name="ledger", tenant="bank"),
        }
        return Configuration(
            streams=streams,
            destinations={each.id: each for each in to},
            channels=self.channels,
        )


def webhook(name: str, at: ScriptedDestination | str, tenant: str = "default") -> Channel:
    url = at if isinstance(at, str) else at.url
    owner = Channel(name, "webhook", tenant=tenant, url=url).owner
    secrets = (BOX.seal(SECRET, owner=owner),)
    return Channel(name, "webhook", tenant=tenant, url=url, signing_secrets=secrets)


def sender(
    mail: MailBox | None = None, *, allow_private: bool = True, resolver: Resolver | None = None
) -> ChannelSender:
    mailer = Mailer(None if mail is None else mail.server(), MailAllowance(100))
    return ChannelSender(ChannelPoster(resolver or Resolver(), allow_private), mailer, BOX)


@asynccontextmanager
async def running(
    hifi: Hifi, folder: Path, *channels: Channel, mail: MailBox | None = None
) -> AsyncIterator[Notifier]:
    hifi.channels = {each.id: each for each in channels}
    notifier = Notifier(
        sender(mail),
        Links(console="https://hifi.example"),
        folder,
        overview=hifi.overview,
        configuration=hifi.configuration,
        flows=dict,
        pause_s=0.1,
        look_s=0.02,
    )
    task = asyncio.create_task(notifier.run())
    try:
        yield notifier
    finally:
        assert not task.done() or task.result() is None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(at: ScriptedDestination, count: int) -> None:
    came = await asyncio.to_thread(at.wait_for, lambda: len(at.accepted) >= count, timeout_s=20)
    assert came, f"{len(at.requests)} requests"


async def until_written(at: ScriptedDestination, folder: Path) -> None:
    def is_written() -> bool:
        file = folder / FILE
        return file.exists() and b'"is_told":true' in file.read_bytes()

    assert await asyncio.to_thread(at.wait_for, is_written, timeout_s=20)


def named(at: ScriptedDestination, number: int, part: str) -> Sequence[str]:
    return [
        f"{it['stream']}/{it['destination']}" for it in json.loads(at.accepted[number].body)[part]
    ]


@in_a_loop
async def test_a_tenant_hears_of_its_own_only_signed_and_told_once(tmp_path: Path) -> None:
    hifi = Hifi()
    with scripted() as shop, scripted() as ops:
        channels = (webhook("shop", shop, "shop"), webhook("ops", ops))
        async with running(hifi, tmp_path, *channels):
            await until(shop, 1)
            await until(ops, 1)
            await until_written(shop, tmp_path)
            await until_written(ops, tmp_path)
        assert named(shop, 0, "begun") == ["orders/to-0", "orders/to-1"]
        assert len(named(ops, 0, "begun")) == 4
        request = shop.accepted[0]
        said = Webhook(SECRET).verify(request.body, request.headers)["begun"][0]
        assert said["says"] == "HELD: it answered 401 to all"
        assert said["console"] == "https://hifi.example/streams/orders/to-0"
        assert said["runbook"] == "https://hifi.example/runbooks/HifiDestinationHeld"
        assert said["waiting_events"] == 40
        assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
        assert SECRET not in (tmp_path / FILE).read_text()
        # After a restart only new findings are sent.
        hifi.count = 3
        async with running(hifi, tmp_path, *channels):
            await until(shop, 2)
        assert named(shop, 1, "begun") == ["orders/to-2"]


@in_a_loop
async def test_that_it_is_over_is_told_but_not_while_nobody_can_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("observe.notify.channel_memory.OVER_AFTER_S", 0.3)
    hifi = Hifi(count=1)
    with scripted() as shop:
        async with running(hifi, tmp_path, webhook("shop", shop, "shop")):
            await until(shop, 1)
            hifi.problem, hifi.verdict = "Kafka cannot be read", StreamVerdict.OK
            looks = hifi.looks + 30
            assert await asyncio.to_thread(shop.wait_for, lambda: hifi.looks >= looks, timeout_s=20)
            assert len(shop.requests) == 1
            hifi.problem = ""
            await until(shop, 2)
        assert named(shop, 1, "over") == ["orders/to-0"]


@in_a_loop
async def test_a_channel_that_takes_nothing_is_asked_again_and_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifying, "_AGAIN_S_MIN", 0.05)
    with scripted(in_turn(503, 302, 200)) as bad, scripted() as good:
        async with running(Hifi(), tmp_path, webhook("bad", bad), webhook("good", good)):
            await until(good, 1)
            await until(bad, 1)
        assert len(bad.requests) == 3
        ids = {request.headers["webhook-id"] for request in bad.requests}
        assert len(ids) == 1
        assert len(good.requests) == 1


@in_a_loop
async def test_what_was_due_is_told_after_a_restart(tmp_path: Path) -> None:
    hifi = Hifi(count=1)
    with scripted(always(500)) as down:
        async with running(hifi, tmp_path, webhook("shop", down, "shop")):
            await asyncio.to_thread(down.wait_for, lambda: bool(down.requests), timeout_s=20)
    with scripted() as up:
        async with running(hifi, tmp_path, webhook("shop", up, "shop")):
            await until(up, 1)
        assert up.accepted[0].headers["webhook-id"] == down.requests[0].headers["webhook-id"]


@in_a_loop
async def test_a_file_that_is_none_of_ours_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    with scripted() as shop:
        async with running(Hifi(), tmp_path, webhook("shop", shop)):
            await until(shop, 1)


def names(address: str) -> Resolver:
    def look_up(_: str) -> list[Address]:
        return [ip_address(address)]

    return Resolver(look_up)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"])
@in_a_loop
async def test_a_name_that_leads_to_our_own_network_is_refused(address: str) -> None:
    with scripted() as inside:
        port = inside.url.rpartition(":")[2]
        channel = webhook("a", f"http://a.example:{port}")
        by = sender(allow_private=False, resolver=names(address))
        told = await by.send(channel, trial_message(channel), now_ms=now_ms())
        assert (told.is_taken, told.says) == (False, "Hifi may not send to this address")
        assert not inside.requests


@in_a_loop
async def test_slack_gets_text_and_no_answer_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted() as slack:
        sealed = BOX.seal(slack.url, owner="channel:default/ops")
        channel = Channel("ops", "slack", secret_url=sealed)
        async with running(Hifi(), tmp_path, channel):
            await until(slack, 1)
        body = json.loads(slack.accepted[0].body)
        assert set(body) == {"text"}
        first, second, *_ = body["text"].splitlines()
        assert first == "*Hifi: 4 things need a look*"
        assert "<https://hifi.example/streams/ledger/to-0|console>" in second
        assert slack.accepted[0].headers["content-type"] == "application/json"
    monkeypatch.setattr("shared.runtime.channels.posting._WITHIN_S", 0.2)
    with scripted(lambda *_: Reply(delay_s=0.6)) as slow:
        channel = webhook("a", slow)
        told = await sender().send(channel, trial_message(channel), now_ms=now_ms())
        assert (told.is_taken, told.says) == (False, "no answer in 0.2 s")


@in_a_loop
async def test_a_secret_that_does_not_open_is_told_and_is_in_nobodys_message() -> None:
    with scripted() as shop:
        theirs = replace(webhook("ops", shop, "shop"), tenant="bank")
        told = await sender().send(theirs, trial_message(theirs), now_ms=now_ms())
        assert not told.is_taken
        assert "its secret cannot be opened" in told.says
        assert not shop.requests


@in_a_loop
async def test_mail_goes_to_its_tenant_alone_and_a_slow_server_holds_up_no_webhook(
    tmp_path: Path,
) -> None:
    hifi = Hifi(count=1)
    with scripted() as shop, mail_server() as mail:
        mail.delay_s = 1.0
        by_mail = Channel("mail", "mail", tenant="shop", recipients=("ops@shop.example",))
        theirs = Channel("mail", "mail", tenant="nobody", recipients=("ops@nobody.example",))
        channels = (by_mail, theirs, webhook("shop", shop, "shop"))
        async with running(hifi, tmp_path, *channels, mail=mail):
            await until(shop, 1)
            assert not mail.taken
            took = await asyncio.to_thread(shop.wait_for, lambda: bool(mail.taken), timeout_s=20)
            assert took
    (taken,) = mail.taken
    assert taken.to == ["ops@shop.example"]
    assert "orders/to-0: HELD: it answered 401 to all" in taken.mail.get_content()
    assert "ledger" not in taken.mail.get_content()


@in_a_loop
async def test_channels_come_change_and_go_while_it_runs(tmp_path: Path) -> None:
    hifi = Hifi(count=1)
    with scripted(always(500)) as down, scripted() as up:
        async with running(hifi, tmp_path) as notifier:
            hifi.channels = {"shop/a": webhook("a", down, "shop")}

            def said() -> list[str]:
                return [it.says for it in notifier.last_messages.values()]

            await asyncio.to_thread(down.wait_for, lambda: bool(said()), timeout_s=20)
            assert said() == ["it answered 500"]
            # A repaired channel sends at once, without the rest of its pause.
            hifi.channels = {"shop/a": webhook("a", up, "shop")}
            await until(up, 1)
            await until_written(up, tmp_path)
            assert said() == ["it answered 200"]
            hifi.channels = {}
            gone = lambda: b"orders" not in (tmp_path / FILE).read_bytes()  # noqa: E731
            assert await asyncio.to_thread(up.wait_for, gone, timeout_s=20)
            hifi.channels = {"shop/b": webhook("b", up, "shop")}
            await until(up, 2)
