"""An observer skips late and foreign questions, and hanging channels delay no other tenant."""

import asyncio
from threading import Event

import msgspec

from observe.notify.channel_trials import ChannelTrials
from shared.config.outside.channel import Channel
from shared.event.record import Origin, RecordIn, RecordOut
from shared.event.topics import TRIALS
from shared.event.trial import (
    ANSWER_WITHIN_S,
    ChannelAnswer,
    ChannelAsked,
    TrialAnswer,
    TrialAsked,
    read_trial,
)
from shared.runtime.channels.settings import ChannelSettings
from shared.runtime.clock import now_ms
from tests.support.servers.scripted_destination import Reply, Request, scripted_destination

OK = ChannelAnswer(is_taken=True, says="it answered 200")


def question(key: str, url: str, *, late_s: float = 0.0, tenant: str = "shop") -> RecordIn:
    channel = Channel("ops", "webhook", tenant=tenant, url=url)
    asked = ChannelAsked(msgspec.Raw(channel.to_json()))
    return record(key, asked.to_bytes(), late_s=late_s)


def record(key: str, value: bytes, *, late_s: float = 0.0) -> RecordIn:
    at_ms = now_ms() - round(1_000 * late_s)
    return RecordIn(Origin(TRIALS, 0, 0), at_ms, key.encode(), value, ())


async def answers_to(*asked: RecordIn, count: int) -> dict[str, object]:
    """Return the first `count` answers, by the keys of their questions."""
    told: dict[str, object] = {}
    is_enough = asyncio.Event()

    async def answer(row: RecordOut) -> None:
        told[(row.key or b"").decode()] = read_trial(row.value)
        if len(told) == count:
            is_enough.set()

    trials = ChannelTrials(ChannelSettings(allow_private=True).channel_sender, answer)
    trials.take(asked)
    async with asyncio.timeout(20):
        await is_enough.wait()
    return told


def test_what_is_late_answered_or_asked_of_others_is_passed_over() -> None:
    with scripted_destination() as at:
        others = TrialAsked("shop", msgspec.Raw(b"{}")).to_bytes()
        told = asyncio.run(
            answers_to(
                record("nonsense", b"nonsense"),
                record("pipeline", others),
                record("answer", TrialAnswer().to_bytes()),
                record("no channel", ChannelAsked(msgspec.Raw(b"{}")).to_bytes()),
                question("late", at.url, late_s=ANSWER_WITHIN_S + 1),
                question("answered", at.url),
                record("answered", OK.to_bytes()),
                question("new", at.url),
                count=1,
            )
        )
    assert told == {"new": OK}
    assert len(at.requests) == 1


def test_the_channels_of_a_tenant_that_hang_keep_no_other_tenant_waiting() -> None:
    over = Event()

    def hangs(_: int, __: Request) -> Reply:
        over.wait(30)
        return Reply()

    with scripted_destination() as at, scripted_destination(hangs) as slow:
        many = [question(f"slow {nth}", slow.url) for nth in range(100)]
        told = asyncio.run(answers_to(*many, question("quick", at.url, tenant="bank"), count=1))
        over.set()
    assert told == {"quick": OK}
