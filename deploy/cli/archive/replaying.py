"""Carries out a replay: in a Spark process of its own, beside the destination's live lane."""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import typer
from pyspark.sql import SparkSession

from delivery.settings import DeliverySettings
from delivery.spark.replay import ReplaySpan, count_matching, replay
from deploy.cli.archive.earlier import Earlier, earlier
from deploy.cli.archive.places import ArchiveChoice
from deploy.cli.printing import harmless, talk
from deploy.cli.signals import INTERRUPTED, on_signals
from deploy.local.secret_keys import VARIABLE, secret_keys
from observe.console.parts import wording
from shared.event.record import Origin, Position
from shared.event.times import rfc3339
from shared.event.topics import destination_id, stream_topic
from shared.runtime.files.one_owner import own_folder
from shared.runtime.kafka.config_topic import read_config
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.kafka.lookup.event_search import EventSearch
from shared.runtime.kafka.lookup.topic_ids import topic_ids
from shared.runtime.kafka.reader import KafkaReader, open_reader
from shared.runtime.settings import read_settings
from shared.runtime.setup_error import NotFoundError, SetupError, UsageError
from shared.runtime.spark.session import SparkSettings, running_spark


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCommand:
    """What is to be sent again, and how."""

    kafka: str
    # Where the data folder is, and which archive has what Kafka has no more.
    place: ArchiveChoice
    replay_id: str
    stream: str
    destination: str
    # Only the newest event of this id; then there is no span.
    event: str | None
    from_ms: int | None
    to_ms: int | None
    # Only events with this ordering key.
    key: str | None
    rate_per_s: float | None
    # Say how many there are, and send none.
    is_dry: bool
    allow_private: bool


def carry_out(order: ReplayCommand) -> None:
    """Say how many there are, and send them, slice by slice, until it is done or interrupted."""
    wanted = asyncio.run(_span(order))
    settings = read_settings(
        DeliverySettings,
        program="hifi replay",
        bootstrap_servers=order.kafka,
        folder=order.place.data / "replay",
        allow_private=order.allow_private,
    )
    talk.print(
        f"{wording.plural(wanted.event_count, 'event')} of {order.stream} in the span;"
        f" {order.destination} gets them from {wording.plural(len(wanted.end), 'Kafka partition')},"
        f" as replay {wanted.replay_id}."
    )
    if order.is_dry and wanted.key is None:
        return
    given = {VARIABLE: order.place.keys} if order.place.keys else {}
    opens = {f"spark.executorEnv.{VARIABLE}": secret_keys(order.place.data, given)}
    with own_folder(settings.folder, what="replay"), _spark(settings.folder, opens) as spark:
        if wanted.key is not None:
            count = count_matching(spark, wanted, settings)
            talk.print(f"{count:,} of them have the key {order.key}.")
        if not order.is_dry:
            _run(spark, wanted, settings)


def _run(spark: SparkSession, wanted: ReplaySpan, settings: DeliverySettings) -> None:
    stop: list[int] = []
    has_run = False
    with on_signals(lambda number, _: stop.append(number), signal.SIGINT):
        for done in replay(spark, wanted, settings):
            has_run = True
            talk.print(f"  {done:,} of {wanted.event_count:,}")
            if stop:
                talk.print(f"Stopped; --id {wanted.replay_id} goes on from here.")
                raise typer.Exit(INTERRUPTED)
    talk.print("Done." if has_run else f"Nothing to do: {wanted.replay_id} is done already.")


async def _span(order: ReplayCommand) -> ReplaySpan:
    """Everything between two times for a destination that there is."""
    to = destination_id(order.stream, order.destination)
    destination = (await read_config(order.kafka)).destinations.get(to)
    if destination is None:
        raise NotFoundError(
            f"There is no destination {to}: `hifi destinations list {order.stream}` lists them."
        )
    if order.rate_per_s is not None:
        destination = replace(destination, rate_per_s=order.rate_per_s)
    if order.event is not None:
        at = await _place_of(order, order.event)
        return ReplaySpan(
            order.replay_id, destination, {at.log: at.offset}, {at.log: at.offset + 1}
        )
    topic = stream_topic(destination.stream)
    async with open_reader(order.kafka) as reader:
        ends, firsts = await reader.ends([topic]), await reader.starts([topic])
        oldest = await reader.oldest_ms([topic])
        start = await _offsets_at(reader, ends, order.from_ms)
        end = await _offsets_at(reader, ends, order.to_ms)
    gone = {where: first for where, first in firsts.items() if first and start[where] == first}
    kept = await _earlier(order, topic, gone, oldest) if gone else None
    if kept is not None:
        from_ms = order.from_ms or 0
        start = {**start, **{where: kept.at(where, from_ms) for where in gone}}
        if (to_ms := order.to_ms) is not None:
            early = [it for it, first in gone.items() if end[it] == first]
            end = {**end, **{where: kept.at(where, to_ms) for where in early}}
        if missing := sum(kept.missing(where, start[where]) for where in gone):
            talk.print(f"{missing:,} of them are neither in Kafka nor in the archive.")
    end = {where: max(offset, start[where]) for where, offset in end.items()}
    key = None if order.key is None else order.key.encode()
    wanted = ReplaySpan(order.replay_id, destination, start, end, key=key)
    return wanted if kept is None else replace(wanted, kept=kept.read, edges=kept.edges)


async def _place_of(order: ReplayCommand, event_id: str) -> Origin:
    """Where the newest event of this id is; the whole log is searched."""
    search, before_ms = EventSearch(order.kafka), None
    while True:
        result = await search.find(order.stream, event_id, before_ms=before_ms)
        if result.found:
            return result.found[0].envelope.origin
        if result.back_to_ms in {None, before_ms}:
            raise NotFoundError(
                f"Kafka has no event {harmless(event_id)} in {order.stream}:"
                f" `hifi events {order.stream}` lists the newest."
            )
        before_ms = result.back_to_ms


async def _earlier(
    order: ReplayCommand, topic: str, gone: Position, oldest_ms: Position
) -> Earlier | None:
    """What the stream's archive has before the log; UsageError if there is none to begin with."""
    from_ms = order.from_ms or 0
    if all(oldest_ms.get(where, from_ms + 1) <= from_ms for where in gone):
        return None
    async with LogClient(order.kafka) as log:
        life = (await topic_ids(log, [topic])).get(topic, "")
    try:
        bucket, lives = order.place.open(order.stream)
    except (SetupError, UsageError) as error:
        begins = rfc3339(min(oldest_ms.values())) if oldest_ms else "a later time"
        raise UsageError(
            f"Kafka has deleted the oldest events of {order.stream}, and no archive has them: begin"
            f" with --from {begins}. {error}"
        ) from error
    return earlier(bucket, lives[-1]._replace(life=life), topic, gone, from_ms=from_ms)


async def _offsets_at(reader: KafkaReader, ends: Position, at_ms: int | None) -> Position:
    """The first offsets not stored before that time; the ends without one."""
    if at_ms is None:
        return ends
    return {**ends, **await reader.offsets_at(dict.fromkeys(ends, at_ms))}


def _spark(folder: Path, more: Mapping[str, str]) -> AbstractContextManager[SparkSession]:
    talk.print("Starting Spark ...", style="dim")
    return running_spark(
        SparkSettings(
            name="hifi-replay",
            folder=folder,
            worker_daemon="delivery.lanes.worker_daemon",
            more=more,
        )
    )
