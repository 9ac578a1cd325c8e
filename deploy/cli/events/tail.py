"""`hifi tail`: prints the records of a topic as they come, until Ctrl-C."""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal, TypeAlias

import typer

from deploy.cli import options
from deploy.cli.events import record_lines
from deploy.cli.printing import reader_may_leave, talk
from shared.event.record import KafkaPartition, RecordIn
from shared.event.topics import DEAD, RECEIPTS, STREAM_PREFIX, retry_topics, stream_of, stream_topic
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.reader import KafkaReader, open_reader
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.setup_error import NotFoundError

# Ctrl-C is felt at once below this, and an idle tail asks twice a second.
_POLL_S = 0.5


From: TypeAlias = Literal["earliest", "latest"]


def tail(  # noqa: PLR0917 - typer makes an option of each
    stream: Annotated[str | None, typer.Argument(help="The stream to watch.")] = None,
    dead: Annotated[bool, typer.Option("--dead", help="Watch the dead letters.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Watch what waits for a retry.")] = False,
    receipts: Annotated[bool, typer.Option("--receipts", help="Watch the receipts.")] = False,
    start: Annotated[
        From, typer.Option("--from", help="All there is, or only what comes now.")
    ] = "latest",
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="End after so many records.", min=1)
    ] = None,
    headers: Annotated[bool, typer.Option("--headers", help="Show the headers too.")] = False,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Print records as they come: time, Kafka partition and offset, facts, key, value.

    Ctrl-C ends it.

        hifi tail demo

        hifi tail demo --from earliest --count 10 --json

        hifi tail --dead --from earliest --headers
    """
    if sum((stream is not None, dead, retry, receipts)) != 1:
        raise typer.BadParameter("name a stream, or one of --dead, --retry and --receipts")
    if stream is not None:
        topics = [stream_topic(stream)]
    elif retry:
        topics = retry_topics(tier.name for tier in RetrySchedule().tiers)
    else:
        topics = [DEAD if dead else RECEIPTS]
    form = record_lines.as_json if as_json else record_lines.as_line
    text_of = partial(form, with_headers=headers)
    with contextlib.suppress(KeyboardInterrupt), reader_may_leave():
        asyncio.run(_print_all(kafka, topics, start, text_of, left=count))


async def _print_all(
    kafka: str,
    topics: list[str],
    start: From,
    text_of: Callable[[RecordIn], str],
    *,
    left: int | None,
) -> None:
    """`left`: how many are still wanted; None for all."""
    async with open_reader(kafka) as reader:
        position = await _position(reader, kafka, topics, start)
        if start == "latest":
            talk.print("waiting for records; Ctrl-C ends it", style="dim")
        follow = reader.follow(position)
        while left != 0:
            records = await follow.read(wait_s=_POLL_S)
            # Kafka knows no order between Kafka partitions; the broker's time comes close.
            records.sort(key=lambda record: (record.timestamp_ms, record.origin.offset))
            for record in records[:left]:
                sys.stdout.write(text_of(record) + "\n")
            sys.stdout.flush()
            left = None if left is None else max(0, left - len(records))


async def _position(
    reader: KafkaReader, kafka: str, topics: list[str], start: From
) -> dict[KafkaPartition, int]:
    read = reader.starts if start == "earliest" else reader.ends
    position = await read(topics)
    if not position:
        async with topic_admin(kafka) as admin:
            names = await admin.names()
        streams = sorted(stream_of(name) for name in names if name.startswith(STREAM_PREFIX))
        raise NotFoundError(
            f"There is no topic {topics[0]}; the streams there are:"
            f" {', '.join(streams) or 'none, start `hifi up` to have one'}."
        )
    return position
