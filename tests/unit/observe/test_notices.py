"""What is worth a message, when it is due, and how a file of channels is judged."""

from dataclasses import replace
from pathlib import Path

import pytest

from observe.notify.channel_memory import OVER_AFTER_S, ChannelMemory, memories_from, to_bytes
from observe.notify.channels import Channel, Channels, read_channels
from observe.notify.messages import NAMED_MAX, body_of, message_id
from observe.notify.notices import Concern, Notice, notices_of, untold_of
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.flow.flow import Flow
from shared.flow.flow_record import FlowRecord
from shared.proof.balance import Balance
from shared.proof.overview import AuditHealth, Overview, StreamVerdict, StreamView
from shared.runtime.setup_error import SetupError
from tests.support.console_fixtures import destination_view
from tests.support.samples import NOW_MS

SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
TO = Destination(stream="orders", name="crm", url="https://crm.example/")
CONFIGURATION = Configuration(
    streams={"orders": Stream(name="orders", tenant="shop")}, destinations={TO.id: TO}
)
RUNS = AuditHealth(last_run_ms=NOW_MS, problem="")
OPS = Channel(name="ops", kind="slack", url="https://hooks.example/secret")
SHOP = Channel(name="shop", kind="webhook", url="https://shop.example/", secret=SECRET)


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
    channels = Channels(console="https://hifi.example", channels=(OPS, SHOP))
    for channel in channels.channels:
        body = body_of(channel, channels, due)
        assert b"1,000 things need a look" in body
        assert body.count(b"https://hifi.example/streams/orders/crm-") == NAMED_MAX
        assert body.count(b"docs/runbooks/HifiDestinationFailing.md") == NAMED_MAX
        # Nobody in Slack is called by what a destination answers.
        assert (b"<!channel>" in body) is (channel is SHOP)
    assert b"and 980 more" in body_of(OPS, channels, due)
    assert message_id(OPS, due) == message_id(OPS, told.due(now_ms=NOW_MS))
    told.look([a_notice(1_000)], (), now_ms=NOW_MS)
    assert message_id(OPS, due) != message_id(OPS, told.due(now_ms=NOW_MS))


def test_a_channel_of_a_tenant_hears_of_nobody_else() -> None:
    theirs = SHOP.model_copy(update={"tenant": "shop"})
    assert theirs.wants(a_notice())
    assert not theirs.wants(a_notice(tenant="bank"))
    assert not theirs.wants(a_notice(tenant=""))
    assert OPS.wants(a_notice(tenant="bank"))
    assert not OPS.model_copy(update={"about": (Concern.LOSS,)}).wants(a_notice())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('channels = "s3cret', "no TOML"),
        ('[[channels]]\nname="a"\nkind="slack"\nurl="ftp://s3cret/"', "http or https"),
        ('[[channels]]\nname="a"\nkind="slack"\nurl="http://[s3cret/"', "no URL"),
        ('[[channels]]\nname="a"\nkind="slack"\nurl="http://169.254.169.254/s3cret"', "sent there"),
        ('[[channels]]\nname="a"\nkind="webhook"\nurl="https://a.example/s3cret"', "a secret"),
        (
            '[[channels]]\nname="a"\nkind="webhook"\nurl="https://a/"\nsecret="s3cret"',
            "signing secret",
        ),
        ('[[channels]]\nname="a"\nkind="pager"\nurl="https://s3cret/"', "channels.0.kind"),
        (2 * '[[channels]]\nname="a"\nkind="slack"\nurl="https://s3cret/"\n', "same name"),
    ],
)
def test_a_wrong_file_is_one_sentence_without_its_secrets(
    tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "n.toml").write_text(text)
    with pytest.raises(SetupError, match=says) as raised:
        read_channels(tmp_path / "n.toml")
    assert "s3cret" not in str(raised.value)


def test_addresses_and_secrets_are_not_printed() -> None:
    assert "secret" not in repr(OPS)
    assert SECRET not in repr(SHOP)
    with pytest.raises(SetupError, match="cannot be read"):
        read_channels(Path("/no/such/file"))
    assert read_channels(None) == Channels()


def test_of_what_it_cannot_be_told_is_known() -> None:
    view = destination_view("orders", "crm", at_ms=NOW_MS)
    unknown = replace(view, verdict=StreamVerdict.CANNOT_TELL)
    stream = StreamView("orders", StreamVerdict.OK, "", 0, None, (unknown,))
    assert untold_of(Overview(NOW_MS, (stream,), RUNS)) == {"orders/crm"}
