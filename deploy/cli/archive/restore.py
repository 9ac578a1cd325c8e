"""`hifi restore`: puts archived events back into a stream."""

import asyncio
import re
import signal
from contextlib import aclosing
from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.archive.places import ArchiveChoice, archive_choice, life_name, store_errors
from deploy.cli.archive.restoring import ArchiveContents, Restore, Restoring, default_id, found
from deploy.cli.archive.verify import INCOMPLETE, gap_lines
from deploy.cli.control.dead import time_ms
from deploy.cli.events.verify import minute_text
from deploy.cli.printing import talk
from deploy.cli.signals import INTERRUPTED, on_signals
from shared import wording
from shared.event.topics import stream_topic
from shared.runtime.kafka.reader import open_reader
from shared.runtime.setup_error import UsageError

_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@options.made_of(place=archive_choice)
def restore_(
    *,
    stream: Annotated[str, typer.Option(help="The stream that was archived.")],
    since: Annotated[
        str | None, typer.Option("--from", help="Stored since 2026-11-21T10:00Z, or 2h.")
    ] = None,
    to: options.StoredBefore = None,
    to_stream: Annotated[
        str | None, typer.Option(help="Target stream; default: the stream it came from.")
    ] = None,
    rate: options.Rate = None,
    restore_id: options.RunId = None,
    dry_run: options.DryRun = False,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    place: ArchiveChoice,
) -> None:
    """Put the events of an archive back: same Kafka partition, key, headers, id and order.

    Exit code 0 when all events are back, 3 when the archive lacks objects in between.

    The target stream must exist, with as many Kafka partitions as the original had. Each event
    gets the header `hifi-restored: ID`. Ctrl-C stops it after the current transaction; the same
    command resumes it.

    hifi restore --stream orders --from 2026-11-21T10:00Z --to-stream orders-again --dry-run
    """
    bucket, lives = place.open(stream)
    archive_id = lives[-1]
    from_ms, to_ms = time_ms("--from", since), time_ms("--to", to)
    wanted = Restore(restore_id or "", archive_id, to_stream or stream, from_ms, to_ms, rate)
    name = restore_id or default_id(wanted)
    if not _ID.fullmatch(name):
        raise typer.BadParameter(f"{name!r} is not a valid name", param_hint="--id")
    wanted = Restore(name, archive_id, wanted.to_stream, from_ms, to_ms, rate)
    with store_errors():
        there = found(bucket, wanted)
    span = f", from {' to '.join(map(minute_text, there.times_ms))}" if there.objects else ""
    talk.print(
        f"{wording.plural(there.count, 'event')} of {stream} in"
        f" {wording.plural(len(there.objects), 'object')}{span}; {wanted.to_stream} gets them as"
        f" restore {name}."
    )
    _tell_missing(there, wanted)
    if others := ", ".join(map(life_name, lives[:-1])):
        newest = life_name(archive_id)
        talk.print(f"They belong to the newest life, {newest}; --life selects another: {others}.")
    if there.objects and not dry_run:
        asyncio.run(_carry_out(kafka, Restoring(kafka, bucket, wanted, there), there))
    if there.gaps:
        raise typer.Exit(INCOMPLETE)


def _tell_missing(there: ArchiveContents, wanted: Restore) -> None:
    for line in gap_lines(there.gaps):
        talk.print(line)
    begins = sorted((partition, at) for partition, at in there.begins.items() if at)
    if begins and wanted.from_ms is None:
        listed = ", ".join(f"{at} of Kafka partition {partition}" for partition, at in begins)
        talk.print(f"The archive has no event before offset {listed}.")


async def _carry_out(kafka: str, restoring: Restoring, there: ArchiveContents) -> None:
    await _check_target(kafka, restoring.wanted.to_stream, there)
    stop: list[int] = []
    with store_errors(), on_signals(lambda number, _: stop.append(number), signal.SIGINT):
        async with aclosing(restoring.run()) as run:
            async for done in run:
                if stop:
                    name = restoring.wanted.id
                    talk.print(f"Stopped after {done:,} events; --id {name} resumes from here.")
                    raise typer.Exit(INTERRUPTED)
    talk.print(f"Done: {restoring.done:,} of {there.count:,} are restored.")


async def _check_target(kafka: str, stream: str, there: ArchiveContents) -> None:
    topic, needed = stream_topic(stream), max(there.partitions) + 1
    async with open_reader(kafka) as reader:
        count = len(await reader.ends([topic]))
    if count < needed:
        raise UsageError(
            f"The stream {stream} has {count} Kafka partitions, and the archive {needed}: run `hifi"
            f" streams put {stream} --partitions {needed}` first."
        )
