"""Makes the options that describe the traffic of a plan, and its promises."""

import math
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

import typer

from deploy.cli.scale.inputs import byte_count, span_s
from shared.runtime.setup_error import UsageError
from shared.scale.traffic import DAY_S

# The members of an Ask.
Members: TypeAlias = dict[str, Any]

# The event size of our benchmarks and most of our examples.
_EVENT_BYTES = 500


class KafkaKind(StrEnum):
    """The kinds of MSK's brokers: express ones have AWS's own storage, standard ones disks."""

    EXPRESS = "express"
    STANDARD = "standard"


def traffic_of(  # noqa: PLR0917 - typer makes an option of each
    events_per_s: Annotated[
        float | None, typer.Option(help="Events per second at the peak, in all streams.", min=0)
    ] = None,
    event_bytes: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Mean size of an event. Default: 500.")
    ] = None,
    per_day: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="Bytes on a mean day, such as 50TB; replaces --events-per-s or --event-bytes.",
        ),
    ] = None,
    mean_share: Annotated[
        float, typer.Option(help="Mean rate as a share of the peak rate.", min=0, max=1)
    ] = 1.0,
    fan_out: Annotated[
        float, typer.Option(help="Mean number of destinations per event.", min=0)
    ] = 1.0,
    batch: Annotated[int, typer.Option(help="Events in a request to the gateway.", min=1)] = 100,
    streams: Annotated[int, typer.Option(help="Streams, of about equal size.", min=1)] = 1,
    hot_key_share: Annotated[
        float,
        typer.Option(
            help="Share of a stream's events with its busiest ordering key.", min=0, max=1
        ),
    ] = 0.0,
    retry_share: Annotated[
        float, typer.Option(help="Share of deliveries that wait for a retry.", min=0, max=1)
    ] = 0.01,
    internet_share: Annotated[
        float, typer.Option(help="Share of deliveries that go to the internet.", min=0, max=1)
    ] = 1.0,
) -> Members:
    if per_day is not None and not mean_share:
        raise UsageError("--mean-share is 0, which contradicts --per-day.")
    mean_bytes_s = None if per_day is None else byte_count(per_day) / DAY_S
    peak_bytes_s = mean_bytes_s and mean_bytes_s / mean_share
    rate, size = _rate_and_size(events_per_s, event_bytes, peak_bytes_s)
    return {
        "events_per_s": rate,
        "event_bytes": size,
        "mean_share": mean_share,
        "fan_out": fan_out,
        "batch": batch,
        "streams": streams,
        "hot_key_share": hot_key_share,
        "retry_share": retry_share,
        "internet_share": internet_share,
    }


def promises_of(  # noqa: PLR0917 - as above
    retention: Annotated[
        str, typer.Option(metavar="SPAN", help="How long streams are kept, such as 7d.")
    ] = "7d",
    outage: Annotated[
        str, typer.Option(metavar="SPAN", help="Longest outage to survive without loss.")
    ] = "3d",
    zone_loss: Annotated[
        bool, typer.Option(help="Carry all traffic while one of three zones is down.")
    ] = True,
    partitions: Annotated[
        int | None, typer.Option(help="Kafka partitions of a stream. Default: as needed.", min=1)
    ] = None,
    reads_own_zone: Annotated[
        bool, typer.Option(help="Consumers read from their own zone (Kafka's client.rack).")
    ] = False,
    kafka: Annotated[
        KafkaKind, typer.Option(help="The kind of MSK's brokers.")
    ] = KafkaKind.EXPRESS,
    broker: Annotated[
        str | None, typer.Option(help="The size of the brokers. Default: chosen by cost.")
    ] = None,
) -> Members:
    return {
        "retention_s": span_s(retention),
        "outage_s": span_s(outage),
        "survives_zone": zone_loss,
        "partitions": partitions,
        "reads_own_zone": reads_own_zone,
        "kafka": kafka.value,
        "broker": broker,
    }


def _rate_and_size(
    events_per_s: float | None, event_bytes: str | None, bytes_s: float | None
) -> tuple[float, int]:
    """Return events/s and bytes per event; derive a missing one from the bytes/s."""
    size = None if event_bytes is None else byte_count(event_bytes)
    if bytes_s is None:
        if events_per_s is None:
            raise UsageError("Give the traffic: --events-per-s, or --per-day (50TB).")
        return events_per_s, math.ceil(_EVENT_BYTES if size is None else size)
    if events_per_s is None:
        size = _EVENT_BYTES if size is None else size
        if not size:
            raise UsageError("--event-bytes is 0, which contradicts --per-day.")
        return bytes_s / size, math.ceil(size)
    if size is not None:
        raise UsageError(
            "--per-day follows from --events-per-s and --event-bytes: leave out one of the three."
        )
    if not events_per_s:
        raise UsageError("--events-per-s is 0, which contradicts --per-day.")
    return events_per_s, math.ceil(bytes_s / events_per_s)
