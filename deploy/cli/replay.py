"""`hifi replay`: sends a span of a stream to a destination once more, beside its live lane."""

import asyncio
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession

from delivery.replay import Replay, count_matching, replay
from delivery.settings import DeliverySettings
from deploy.cli import options
from deploy.cli.dead import time_ms
from deploy.cli.printing import talk
from deploy.local.secret_keys import VARIABLE, secret_keys
from shared.runtime.config_topic import read_config
from shared.runtime.jars import default_cache, ensure_jars
from shared.runtime.one_owner import own_folder
from shared.runtime.setup_error import SetupError
from shared.runtime.spark import SparkSettings, start_spark, stop_spark
from shared.runtime.topic_admin import topic_admin
from shared.topics import destination_id, stream_topic

_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def replay_(  # noqa: PLR0917 - typer makes an option of each
    stream: Annotated[str, typer.Option(help="The stream.")],
    destination: Annotated[str, typer.Option(help="Its destination: the name.")],
    since: Annotated[
        str, typer.Option("--from", help="Stored since: 2026-11-21T10:00Z, or 2h for 2 h ago.")
    ],
    to: Annotated[str | None, typer.Option("--to", help="Stored before; as --from.")] = None,
    key: Annotated[str | None, typer.Option(help="Only events with this ordering key.")] = None,
    rate: Annotated[
        float | None, typer.Option(help="At most so many events per second.", min=0.001)
    ] = None,
    replay_id: Annotated[
        str | None, typer.Option("--id", help="A name: the same again goes on, never twice.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many there are.")
    ] = False,
    data: options.Data = options.DATA_DEFAULT,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    keys: Annotated[
        str | None,
        typer.Option("--secret-keys", envvar=VARIABLE, help="Open secrets; else those of DATA."),
    ] = None,
    allow_private: Annotated[
        bool,
        typer.Option(
            envvar="HIFI_DELIVERY_ALLOW_PRIVATE", help="Send to private addresses as well."
        ),
    ] = False,
) -> None:
    """Send a span of a stream to a destination again, in a Spark process of its own.

    The live lane goes on beside it. Requests say `hifi-replay: ID`. Ctrl-C ends it after the slice
    under way; the same command with the same --id goes on there.

    hifi replay --stream demo --destination sample --from 2h --dry-run
    """
    now_ms = time.time_ns() // 1_000_000
    from_ms, to_ms = (time_ms("--from", since, now_ms=now_ms), time_ms("--to", to, now_ms=now_ms))
    name = replay_id or f"at-{now_ms}"
    if not _ID.fullmatch(name):
        raise typer.BadParameter(f"{name!r} is no name", param_hint="--id")
    to_id = destination_id(stream, destination)
    wanted = replace(
        asyncio.run(_span(kafka, name, to_id, from_ms=from_ms, to_ms=to_ms)),
        key=None if key is None else key.encode(),
        rate_per_s=rate,
    )
    settings = DeliverySettings(
        bootstrap_servers=kafka, folder=data.absolute() / "replay", allow_private=allow_private
    )
    talk.print(
        f"{wanted.event_count:,} events of {stream} are in the span; {destination} gets them from"
        f" {len(wanted.end)} Kafka partitions, as replay {name}."
    )
    if dry_run and wanted.key is None:
        return
    given = {VARIABLE: keys} if keys else {}
    opens = {f"spark.executorEnv.{VARIABLE}": secret_keys(data.absolute(), given)}
    with own_folder(settings.folder, what="replay"), _spark(settings.folder, opens) as spark:
        if wanted.key is not None:
            talk.print(f"{count_matching(spark, wanted, settings):,} of them have the key {key}.")
        if not dry_run:
            _run(spark, wanted, settings)


def _run(spark: SparkSession, wanted: Replay, settings: DeliverySettings) -> None:
    stop: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: stop.append(number))
    has_run = False
    try:
        for done in replay(spark, wanted, settings):
            has_run = True
            talk.print(f"  {done:,} of {wanted.event_count:,}")
            if stop:
                talk.print(f"Stopped; --id {wanted.replay_id} goes on from here.")
                raise typer.Exit(130)
    finally:
        signal.signal(signal.SIGINT, before)
    talk.print("Done." if has_run else f"Nothing to do: {wanted.replay_id} is done already.")


async def _span(
    kafka: str, name: str, destination: str, *, from_ms: int | None, to_ms: int | None
) -> Replay:
    """Everything between two times for a destination that there is."""
    found = (await read_config(kafka)).destinations.get(destination)
    if found is None:
        raise SetupError(f"There is no destination {destination}: `hifi destinations` lists them.")
    async with topic_admin(kafka) as admin:
        topic = stream_topic(found.stream)
        start = await admin.offsets_at(topic, from_ms)
        end = await admin.offsets_at(topic, to_ms)
    end = {where: max(offset, start[where]) for where, offset in end.items()}
    return Replay(name, found, start, end)


@contextmanager
def _spark(folder: Path, more: Mapping[str, str]) -> Iterator[SparkSession]:
    talk.print("Starting Spark ...", style="dim")
    jars = ensure_jars("spark", cache=default_cache())
    spark = start_spark(
        SparkSettings(
            name="hifi-replay",
            folder=folder,
            jars=jars,
            worker_daemon="delivery.worker_daemon",
            more=more,
        )
    )
    try:
        yield spark
    finally:
        stop_spark(spark)
