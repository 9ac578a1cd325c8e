"""Many channels: a hanging or broken one holds up no other, and a flood becomes one message."""

import asyncio
import json
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from observe.notify import notifier as notifying
from shared.config.addresses import Address
from shared.config.outside.channel import Channel
from shared.proof.overview import Overview, StreamView
from shared.runtime.channels.message import trial_message
from shared.runtime.clock import now_ms
from shared.runtime.resolver import Resolver
from tests.component.observe.notify.test_notifier import (
    BOX,
    Hifi,
    in_a_loop,
    named,
    running,
    sender,
    until,
    webhook,
)
from tests.support.console.hostile_texts import HOSTILE_TEXTS
from tests.support.servers.mail_server import mail_server
from tests.support.servers.scripted_destination import Reply, ScriptedDestination
from tests.support.servers.scripted_destination import scripted_destination as scripted
from tests.support.servers.slack_server import SlackRules


class HostileHifi(Hifi):
    """A Hifi whose destinations answer with hostile texts."""

    def overview(self) -> Overview:
        shown = super().overview()
        streams = []
        for stream in shown.streams:
            views = [
                replace(view, reason=10 * HOSTILE_TEXTS[at % len(HOSTILE_TEXTS)])
                for at, view in enumerate(stream.destinations)
            ]
            streams.append(
                StreamView(stream.name, stream.verdict, "", 0, None, destinations=tuple(views))
            )
        return replace(shown, streams=tuple(streams))


def slack(name: str, at: ScriptedDestination, tenant: str = "shop") -> Channel:
    owner = f"channel:{tenant}/{name}"
    return Channel(name, "slack", tenant=tenant, secret_url=BOX.seal(at.url, owner=owner))


@in_a_loop
async def test_a_tenant_whose_channels_all_hang_holds_up_no_other(tmp_path: Path) -> None:
    with (
        scripted(lambda *_: Reply(delay_s=60)) as hangs,
        scripted() as good,
        mail_server() as mail,
    ):
        # The mail server is slow for an address of a tenant's choice.
        mail.slow_to = {"ops@tarpit.example": 60.0}
        theirs = [webhook(f"hangs-{at}", hangs, "shop") for at in range(20)]
        theirs += [
            Channel(f"slow-{at}", "mail", tenant="shop", recipients=("ops@tarpit.example",))
            for at in range(20)
        ]
        ours = (
            webhook("good", good, "bank"),
            Channel("mail", "mail", tenant="bank", recipients=("ops@bank.example",)),
        )
        async with running(Hifi(), tmp_path, *theirs, *ours, mail=mail):
            await until(good, 1)
            took = await asyncio.to_thread(good.wait_for, lambda: bool(mail.taken), timeout_s=15)
            assert took
            assert [it.to for it in mail.taken] == [["ops@bank.example"]]
            assert not hangs.accepted


@in_a_loop
async def test_more_than_may_be_sent_to_at_once_wait_for_no_longer_than_one_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifying, "_AT_ONCE_MAX", 2)
    monkeypatch.setattr("shared.runtime.channels.posting._WITHIN_S", 2.0)
    with scripted(lambda *_: Reply(delay_s=60)) as hangs, scripted() as good:
        theirs = [webhook(f"hangs-{at}", hangs, "shop") for at in range(4)]
        async with running(Hifi(), tmp_path, *theirs, webhook("good", good, "bank")):
            await until(good, 1)
            # The other tenant's channels had their turns, two at a time.
            assert len(hangs.requests) == 4


@in_a_loop
async def test_a_channel_that_breaks_the_sender_is_one_that_is_not_told(tmp_path: Path) -> None:
    with scripted() as good:
        broken = replace(webhook("broken", good, "shop"), signing_secrets=())
        sealed = BOX.seal("no signing secret", owner=broken.owner)
        broken = replace(broken, signing_secrets=(sealed,))
        async with running(Hifi(), tmp_path, broken, webhook("good", good, "bank")):
            await until(good, 1)
        assert named(good, 0, "begun") == ["ledger/to-0", "ledger/to-1"]


@in_a_loop
async def test_a_flood_is_one_message_for_each_channel(tmp_path: Path) -> None:
    hifi = Hifi(count=1_000)
    with scripted() as shop:
        async with running(hifi, tmp_path, webhook("shop", shop, "shop")):
            await until(shop, 1)
            looks = hifi.looks + 5
            assert await asyncio.to_thread(shop.wait_for, lambda: hifi.looks >= looks, timeout_s=60)
        assert len(shop.requests) == 1
        assert json.loads(shop.accepted[0].body)["begun_count"] == 1_000


@in_a_loop
async def test_slack_takes_whatever_destinations_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifying, "_AGAIN_S_MIN", 0.3)
    rules = SlackRules()
    hifi = HostileHifi(count=40)
    with scripted(rules) as at:
        # Two channels share an address: one message is refused as too early, and sent again.
        async with running(hifi, tmp_path, slack("a", at), slack("b", at)):
            await until(at, 2)
    assert {*rules.said} == {"ok", "rate_limited"}
    texts = [json.loads(each.body)["text"] for each in at.accepted]
    for text in texts:
        head, *lines, rest = text.splitlines()
        assert head == "*Hifi: 40 things need a look*"
        assert rest == f"and {40 - len(lines)} more"
        assert lines


@in_a_loop
async def test_slack_takes_a_message_for_a_try() -> None:
    rules = SlackRules()
    with scripted(rules) as at:
        channel = slack("a", at)
        told = await sender().send(channel, trial_message(channel), now_ms=now_ms())
        assert (told.is_taken, rules.said) == (True, ["ok"])


def two_addresses(_: str) -> list[Address]:
    # Nobody listens at the first address.
    return [ip_address("127.0.0.9"), ip_address("127.0.0.1")]


@in_a_loop
async def test_an_address_of_a_name_that_is_away_gives_way_to_the_next() -> None:
    with scripted() as at:
        port = at.url.rpartition(":")[2]
        channel = webhook("a", f"http://two.example:{port}")
        by = sender(resolver=Resolver(two_addresses))
        told = await by.send(channel, trial_message(channel), now_ms=now_ms())
        assert (told.is_taken, told.says) == (True, "it answered 200")
