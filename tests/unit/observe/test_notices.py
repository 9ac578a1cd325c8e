"""Notices that are worth a message, when they are due, and their text in each channel."""

from dataclasses import replace

import pytest

from observe.notify.channel_memory import OVER_AFTER_S, ChannelMemory, memories_from, to_bytes
from observe.notify.messages import NAMED_MAX, Links, message_of
from observe.notify.notices import Notice, notices_of, untold_of
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.config.outside.channel import Channel, Concern
from shared.flow.flow import Flow
from shared.flow.flow_record import FlowRecord
from shared.proof.balance import Balance
from shared.proof.overview import AuditHealth, Overview, StreamVerdict, StreamView
from tests.support.console.console_fixtures import destination_view
from tests.support.suite.samples import NOW_MS

TO = Destination(stream="orders", name="crm", url="https://crm.example/")
CONFIGURATION = Configuration(
    streams={"orders": Stream(name="orders", tenant="shop")}, destinations={TO.id: TO}
)
RUNS = AuditHealth(last_run_ms=NOW_MS, problem="")
OPS = Channel("ops", "slack", secret_url="sealed:v1:address")
SHOP = Channel("shop", "webhook", tenant="shop", url="https://shop.example/")
MAIL = Channel("shop", "mail", tenant="shop", recipients=("ops@shop.example",))


def seen(
    verdict: StreamVerdict = StreamVerdict.OK,
    *,
    cause: str = "",
    unaccounted: int = 0,
    audit: AuditHealth = RUNS,
    flow: Flow | None = None,
    to: Destination = TO,
) -> list[tuple[Concern, str, str]]:
    balance = Balance(9, 9 - unaccounted, 0, 0, 0, unaccounted)
    view = replace(
        destination_view("orders", "crm", at_ms=NOW_MS),
        verdict=verdict,
        cause=cause,
        balance=balance,
    )
    stream = StreamView("orders", verdict, "", 0, None, (view,))
    flows = {TO.id: FlowRecord(Flow()).with_flow(flow, now_ms=NOW_MS)} if flow else {}
    configuration = replace(CONFIGURATION, destinations={to.id: to})
    found = notices_of(Overview(NOW_MS, (stream,), audit), configuration, flows, now_ms=NOW_MS)
    return [(it.concern, it.runbook, it.tenant) for it in found]


@pytest.mark.parametrize(
    ("verdict", "concern", "runbook"),
    [
        (StreamVerdict.FAILING, Concern.FAILING, "HifiDestinationFailing"),
        (StreamVerdict.REJECTING, Concern.FAILING, "HifiDestinationRejecting"),
        (StreamVerdict.HELD, Concern.HELD, "HifiDestinationHeld"),
        (StreamVerdict.DISABLED, Concern.HELD, "HifiDestinationHeld"),
        (StreamVerdict.SLOW, Concern.LAG, "HifiDestinationSlow"),
        (StreamVerdict.STALLED, Concern.LAG, "HifiStreamStopped"),
        (StreamVerdict.LOSING, Concern.LOSS, "HifiLoss"),
    ],
)
def test_a_word_of_trouble_is_its_tenants(
    verdict: StreamVerdict, concern: Concern, runbook: str
) -> None:
    assert seen(verdict) == [(concern, runbook, "shop")]


def test_what_is_well_slow_by_nature_or_a_persons_will_is_not_told() -> None:
    assert not seen() + seen(StreamVerdict.PAUSED)
    assert not seen(StreamVerdict.SLOW, cause="slow_answers")
    assert not seen(StreamVerdict.DISABLED, cause="disabled")


def test_events_without_an_outcome_are_a_loss() -> None:
    assert seen(unaccounted=3) == [(Concern.LOSS, "HifiUnaccounted", "shop")]


def test_a_destination_that_has_failed_for_long_will_be_disabled() -> None:
    part_ms = round(TO.disable_after_s * 1000)
    flow = replace_since(NOW_MS - part_ms * 71 // 100)
    told = (Concern.SOON_DISABLED, "HifiDestinationWillBeDisabled", "shop")
    assert seen(flow=flow) == [told]
    assert not seen(flow=replace_since(NOW_MS - part_ms * 69 // 100))
    assert not seen(flow=flow, to=replace(TO, is_disabled=True))


def replace_since(since_ms: int) -> Flow:
    return Flow(failing_since_ms=since_ms)


def test_that_nobody_looks_is_the_operators_matter() -> None:
    behind = AuditHealth(last_run_ms=1, behind_s=601, problem="it died")
    assert seen(audit=behind) == [(Concern.NO_AUDIT, "HifiAuditBehind", "")]
    assert not seen(audit=replace(behind, is_elsewhere=True))
    assert seen(StreamVerdict.CANNOT_TELL) == [(Concern.NO_AUDIT, "HifiCannotTell", "")]


def a_notice(number: int = 0, *, holds_s: float = 0.0, tenant: str = "shop") -> Notice:
    says = "FAILING: <!channel> it said & no"
    to = f"orders/crm-{number}"
    return Notice(Concern.FAILING, "HifiDestinationFailing", holds_s, says, to, tenant, 7)


def test_it_is_told_once_it_has_held_and_once_it_is_over() -> None:
    told, notice = ChannelMemory(), a_notice(holds_s=300)
    after = [NOW_MS + s * 1000 for s in (0, 299, 300, 330, 389, 390)]
    assert told.look([notice], (), now_ms=after[0])
    told.look([notice], (), now_ms=after[1])
    assert not told.due(now_ms=after[1])
    told.look([notice], (), now_ms=after[2])
    due = told.due(now_ms=after[2])
    assert [it.notice for it in due.begun] == [notice]
    told.was_told(due)
    assert not told.due(now_ms=after[2])
    told.look([notice], (), now_ms=after[3])
    told.look([], (), now_ms=after[4])
    assert not told.due(now_ms=after[4])
    told.look([], (), now_ms=after[5])
    due = told.due(now_ms=after[5])
    assert [it.notice for it in due.over] == [notice]
    told.was_told(due)
    assert not told.standings


def test_what_cannot_be_told_begins_and_ends_nothing() -> None:
    told, notice = ChannelMemory(), a_notice()
    told.look([notice], (), now_ms=NOW_MS)
    told.was_told(told.due(now_ms=NOW_MS))
    later_ms = NOW_MS + 10 * round(OVER_AFTER_S * 1000)
    told.look([], {notice.destination_id}, now_ms=later_ms)
    assert not told.due(now_ms=later_ms)
    told.stand_still(now_ms=2 * later_ms)
    assert not told.due(now_ms=2 * later_ms)
    waits = ChannelMemory()
    waits.look([a_notice(holds_s=60)], (), now_ms=NOW_MS)
    waits.stand_still(now_ms=later_ms)
    assert not waits.due(now_ms=later_ms)


def test_a_loss_is_never_said_to_be_over() -> None:
    told = ChannelMemory()
    told.look([replace(a_notice(), concern=Concern.LOSS)], (), now_ms=NOW_MS)
    told.was_told(told.due(now_ms=NOW_MS))
    told.look([], (), now_ms=NOW_MS + 60_000)
    assert not told.due(now_ms=NOW_MS + 60_000)
    assert not told.standings


def test_what_was_over_while_it_was_being_told_is_told_to_be_over() -> None:
    told = ChannelMemory()
    told.look([a_notice()], (), now_ms=NOW_MS)
    due = told.due(now_ms=NOW_MS)
    told.look([], (), now_ms=NOW_MS + 60_000)
    assert not told.standings
    told.was_told(due)
    assert told.due(now_ms=NOW_MS + 60_000).over


def test_a_restart_tells_nothing_twice_and_forgets_nothing() -> None:
    told = ChannelMemory()
    told.look([a_notice(0)], (), now_ms=NOW_MS)
    told.was_told(told.due(now_ms=NOW_MS))
    told.look([a_notice(0), a_notice(1)], (), now_ms=NOW_MS)
    again = memories_from(to_bytes({"shop": told}), now_ms=NOW_MS + 999_000)["shop"]
    again.look([a_notice(0), a_notice(1)], (), now_ms=NOW_MS + 999_000)
    due = again.due(now_ms=NOW_MS + 999_000)
    assert [it.notice for it in due.begun] == [a_notice(1)]
    assert not due.over


def test_a_thousand_are_one_message_whose_id_follows_from_them() -> None:
    told = ChannelMemory()
    told.look([*map(a_notice, range(1_000))], (), now_ms=NOW_MS)
    due = told.due(now_ms=NOW_MS)
    links = Links(console="https://hifi.example")
    # Slack has room for fewer.
    for channel, count in ((OPS, 17), (SHOP, NAMED_MAX), (MAIL, NAMED_MAX)):
        message = message_of(channel, links, due)
        assert message.title == "Hifi: 1,000 things need a look"
        assert b"1,000 things need a look" in message.body
        assert message.body.count(b"https://hifi.example/streams/orders/crm-") == count
        assert message.body.count(b"/runbooks/HifiDestinationFailing") == count
        # A destination's answer cannot mention anybody in Slack.
        assert (b"<!channel>" in message.body) is (channel is not OPS)
        assert (b"and %d more" % (1_000 - count) in message.body) is (channel is not SHOP)
        assert message.id == message_of(channel, links, told.due(now_ms=NOW_MS)).id
    # Another tenant's channel may have the same name.
    theirs = replace(SHOP, tenant="bank")
    assert message_of(SHOP, links, due).id != message_of(theirs, links, due).id
    told.look([a_notice(1_000)], (), now_ms=NOW_MS)
    assert message_of(OPS, links, due).id != message_of(OPS, links, told.due(now_ms=NOW_MS)).id


def test_what_a_destination_answers_stays_in_its_line_of_a_mail() -> None:
    told = ChannelMemory()
    says = "FAILING: it said\r\n\r\nSubject: you have won"
    told.look([replace(a_notice(), says=says)], (), now_ms=NOW_MS)
    lines = message_of(MAIL, Links(), told.due(now_ms=NOW_MS)).body.decode().splitlines()
    assert [line for line in lines if "won" in line] == [
        (
            "• orders/crm-0: FAILING: it said Subject: you have won (since 2023-11-14T22:13:20Z,"
            " backlog 7) runbook: docs/runbooks/HifiDestinationFailing.md"
        )
    ]


def test_half_a_character_of_a_destinations_keeps_nobody_from_the_rest() -> None:
    told = ChannelMemory()
    told.look([replace(a_notice(), says="FAILING: \ud83d")], (), now_ms=NOW_MS)
    for channel in (OPS, SHOP, MAIL):
        assert b"FAILING: " in message_of(channel, Links(), told.due(now_ms=NOW_MS)).body


def test_of_what_it_cannot_be_told_is_known() -> None:
    view = destination_view("orders", "crm", at_ms=NOW_MS)
    unknown = replace(view, verdict=StreamVerdict.CANNOT_TELL)
    stream = StreamView("orders", StreamVerdict.OK, "", 0, None, (unknown,))
    assert untold_of(Overview(NOW_MS, (stream,), RUNS)) == {"orders/crm"}
