"""Replays events that only an archive has: writes them to the topic that the retriers send from.

The gateway lists and cancels it like other replays (ADR 0109). But no retrier can read the
archive, so this process reads it, for as long as the replay takes.
"""

import asyncio
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import typer

from deploy.cli.archive.archived_events import ArchivedEvents, earlier
from deploy.cli.archive.places import ArchiveChoice
from deploy.cli.printing import talk
from deploy.cli.signals import INTERRUPTED, on_signals
from shared import wording
from shared.event.record import KafkaPartition
from shared.event.times import rfc3339
from shared.event.topics import OUTCOME_BYTES_MAX, REPLAYS, destination_id, stream_topic
from shared.retry.replay import Replay, ReplayOrder, Replays, order_row, progress_row, queued_rows
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.config_topic import read_config
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.kafka.lookup.replays import ReplayFeed
from shared.runtime.kafka.lookup.topic_ids import topic_ids
from shared.runtime.kafka.only_writer import Row, Write, only_writer, rows_of
from shared.runtime.kafka.reader import open_reader
from shared.runtime.setup_error import NotFoundError, SetupError, UsageError

# Events in a transaction: one second's worth at 500 events a second.
_EVENTS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReplay:
    """The events to send again, and how to send them."""

    kafka: str
    place: ArchiveChoice
    replay_id: str
    stream: str
    destination: str
    from_ms: int
    to_ms: int | None
    rate_per_s: float
    # Only count the events.
    is_dry: bool


def carry_out(wanted: ArchiveReplay) -> None:
    """Print the number of events, and queue them all, unless the replay is stopped or cancelled."""
    stop: list[int] = []
    with on_signals(lambda number, _: stop.append(number), signal.SIGINT):
        asyncio.run(_carry_out(wanted, stop))


async def _carry_out(wanted: ArchiveReplay, stop: Sequence[int]) -> None:
    kept, order = await _found(wanted)
    talk.print(
        f"{wording.plural(order.count, 'event')} of {wanted.stream} in the archive, and no longer"
        f" in Kafka; {wanted.destination} gets them as replay {wanted.replay_id}."
    )
    if wanted.is_dry:
        return
    feed = ReplayFeed(wanted.kafka)
    await feed.start()
    try:
        options = {"max_request_size": OUTCOME_BYTES_MAX}
        async with only_writer(wanted.kafka, order.writer, **options) as write:
            # Any previous writer is fenced off: continue from its last position.
            replay = await _begun(order, await feed.newest(), write)
            await _run(replay, kept, feed, write, stop)
    finally:
        await feed.stop()


async def _run(
    replay: Replay, kept: ArchivedEvents, feed: ReplayFeed, write: Write, stop: Sequence[int]
) -> None:
    order = replay.order
    assert order is not None, "it was begun"
    while (span := replay.next_span(_EVENTS)) is not None:
        began_s = time.monotonic()
        replay = await _slice(kept, replay, span, write)
        text = f"  {replay.read_count:,} of {order.count:,}"
        if stop:
            talk.print(f"{text}. Stopped; the same command with --id {order.id} resumes here.")
            raise typer.Exit(INTERRUPTED)
        talk.print(text)
        pause_s = (span[2] - span[1]) / order.rate_per_s - (time.monotonic() - began_s)
        await asyncio.sleep(max(0.0, pause_s))
        if feed.value.get((order.stream, order.id), replay).state == "cancelled":
            raise UsageError(f"The replay {order.id} was cancelled meanwhile.")
    done = msgspec.structs.replace(replay.progress, state="done", updated_at_ms=now_ms())
    await write([(REPLAYS, *progress_row(order, done), ())])
    talk.print(f"Done: {done.sent:,} are queued, and are sent within half a minute.")


async def _found(wanted: ArchiveReplay) -> tuple[ArchivedEvents, ReplayOrder]:
    """Return the events before Kafka's log; UsageError if Kafka still has the whole span."""
    known, topic = await read_config(wanted.kafka), stream_topic(wanted.stream)
    to = known.destinations.get(destination_id(wanted.stream, wanted.destination))
    if to is None:
        raise NotFoundError(
            f"There is no destination {wanted.stream}/{wanted.destination}:"
            f" `hifi destinations list {wanted.stream}` lists them."
        )
    async with open_reader(wanted.kafka) as reader:
        starts, oldest_ms = await reader.starts([topic]), await reader.oldest_ms([topic])
    gone = {where: first for where, first in starts.items() if first}
    if all(oldest_ms.get(where, wanted.from_ms + 1) <= wanted.from_ms for where in gone):
        raise UsageError(
            f"Kafka has all events of {wanted.stream} from that time on: `hifi replays create"
            f" {wanted.stream} --destination {wanted.destination}` sends them again."
        )
    async with LogClient(wanted.kafka) as log:
        life = (await topic_ids(log, [topic])).get(topic, "")
    try:
        bucket, lives = wanted.place.open(wanted.stream)
    except (SetupError, UsageError) as error:
        begins = rfc3339(min(oldest_ms.values())) if oldest_ms else "a later time"
        raise UsageError(
            f"Kafka has deleted the oldest events of {wanted.stream}, and no archive has them: use"
            f" `hifi replays create` with --from {begins}. {error}"
        ) from error
    kept = earlier(bucket, lives[-1]._replace(life=life), topic, gone, from_ms=wanted.from_ms)
    begins_at = {where: kept.at(where, wanted.from_ms) for where in gone}
    if missing := sum(kept.missing(where, begins_at[where]) for where in gone):
        talk.print(f"{missing:,} more are neither in Kafka nor in the archive.")
    spans = {
        where.partition: (
            begins_at[where],
            end if wanted.to_ms is None else max(begins_at[where], kept.at(where, wanted.to_ms)),
        )
        for where, end in gone.items()
    }
    return kept, ReplayOrder(
        id=wanted.replay_id,
        stream=wanted.stream,
        destination=wanted.destination,
        tenant=known.streams[wanted.stream].tenant,
        spans=spans,
        created_at_ms=now_ms(),
        from_ms=wanted.from_ms,
        to_ms=wanted.to_ms,
        rate_per_s=wanted.rate_per_s,
        is_archived=True,
    )


async def _begun(order: ReplayOrder, known: Replays, write: Write) -> Replay:
    """Return the replay: where it stopped if it was begun before, else a new one."""
    there = known.get((order.stream, order.id), Replay())
    if there.order is None:
        await write([(REPLAYS, *order_row(order), ())])
        return Replay(order)
    if not there.order.is_same_as(order) or there.state != "running":
        raise UsageError(
            f"The replay {order.id} is {there.state}, from {rfc3339(there.order.from_ms or 0)} to"
            f" {there.order.destination}: choose another --id, or repeat the same command."
        )
    return there


async def _slice(
    kept: ArchivedEvents, replay: Replay, span: tuple[int, int, int], write: Write
) -> Replay:
    """Write some events to the first tier together with the progress, all or nothing."""
    assert replay.order is not None, "it was begun"
    order, progress, (number, begin, end) = replay.order, replay.progress, span
    records = await asyncio.to_thread(kept.records, KafkaPartition(kept.topic, number), begin, end)
    at_ms = now_ms()
    rows = queued_rows(order, records, schedule=RetrySchedule(), now_ms=at_ms)
    progress = msgspec.structs.replace(
        progress,
        at={**progress.at, number: end},
        sent=progress.sent + len(records),
        gone=progress.gone + end - begin - len(records),
        reached_ms=max([progress.reached_ms, *(record.timestamp_ms for record in records)]),
        updated_at_ms=at_ms,
    )
    row: Row = (REPLAYS, *progress_row(order, progress), ())
    await write([*rows_of(rows), row])
    return Replay(order, progress)
