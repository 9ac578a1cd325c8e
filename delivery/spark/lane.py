"""Starts a lane: one Spark query from a stream's topic through `deliver` to Kafka.

One action per micro-batch, and nothing after the HTTP step: a second one would POST everything
twice. The sink flushes before the task succeeds, so the checkpoint moves only after every event
has its outcome in Kafka.
"""

import random
import shutil
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from math import ceil, inf
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from delivery.deliver import TROUBLE_WAIT_S, Plan
from delivery.settings import DeliverySettings
from delivery.spark.task import deliver_stream
from shared.config.destination import Destination, Latency
from shared.event.record import KafkaPartition, Position
from shared.event.topics import CONFIG, stream_topic
from shared.flow.flow_record import FlowRecord
from shared.runtime.kafka.lane_positions import Told, told
from shared.runtime.kafka.spark_options import EARLIEST, sink_options, stream_options
from shared.runtime.one_owner import own_folder
from shared.runtime.spark.arrow_rows import COLUMNS_IN, SCHEMA_OUT
from shared.runtime.spark.checkpoint import is_behind, position, replay_until, set_aside
from shared.runtime.spark.lane_driver import Flows, Tell
from shared.runtime.spark.packed_rows import AND_NOTHING, PACKED
from shared.runtime.spark.session import map_arrow, write_outcomes

# How long the broker may hold a fetch that finds nothing; the default of 500 ms is felt by the
# first event after a pause.
_FETCH_WAIT_MS = 50
# A micro-batch is to be done in half of its time box, so that no healthy destination has events
# parked for lack of time: this is how long an answer takes until one is known.
_USUAL_MS = 100.0
# However quickly it answers, so many requests one after the other are enough for a micro-batch.
_ROUNDS_MAX = 100
# And no more than so many seconds' worth of what a destination's rate lets through.
_RATE_SPAN_S = 2.0
# A lane at rest begins a micro-batch each time box. Spark's triggers are multiples of the interval
# since 1970, so equal ones would make all lanes at rest busy in the same moments (ADR 0038).
_REST_BOXES = (0.8, 1.0)
_DICE = random.SystemRandom()
# A cold JVM with a class archive needs 5 s for its first micro-batch, and far longer on a busy one.
_WARM_UP_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Lane:
    """What is wanted of a lane."""

    destination: Destination
    # Its destination may not be sent to just now: it only parks, and need not hurry.
    is_resting: bool = False

    def differs_in_rest_only(self, other: "Lane") -> bool:
        return self.destination == other.destination


@dataclass(frozen=True, slots=True)
class _Begin:
    """How a lane goes on."""

    # How far it is before it runs: its receipts are confirmed by what it passes after that.
    at: Position
    # From where its source is to read, if not from where its checkpoint says, or its settings.
    start: Position | None
    # Offsets below these may have been sent.
    maybe_sent: Position


def checkpoint_of(settings: DeliverySettings, destination_id: str, latency: Latency) -> Path:
    """Where a lane's position is kept. A destination that comes back goes on where it was."""
    name = destination_id if latency == "micro-batch" else f"{destination_id}.realtime"
    return settings.checkpoints / name


def hold_lane(destination_id: str, settings: DeliverySettings) -> AbstractContextManager[None]:
    """One writer for each checkpoint, whatever processes there are."""
    return own_folder(settings.checkpoints / f"{destination_id}.owner", what="lane")


def start_lane(
    spark: SparkSession, lane: Lane, flows: Flows, tell: Tell, *, settings: DeliverySettings
) -> StreamingQuery:
    """Start the query of one destination."""
    destination = lane.destination
    checkpoint = checkpoint_of(settings, destination.id, destination.latency)
    begin = _begin(destination, settings)
    tell(begin.at)
    is_realtime = destination.latency == "realtime"
    plan = Plan(
        reads="stream",
        is_realtime=is_realtime,
        destinations={destination.id: destination},
        schedule=settings.schedule,
        time_box_s=settings.time_box_s,
        # At rest it only parks, and is asleep again before a pause would have to cut it off.
        trouble_wait_s_max=TROUBLE_WAIT_S if lane.is_resting else inf,
        replay_until=begin.maybe_sent,
        allows_private=settings.allow_private,
        flow_folder=settings.flows,
        flows={name: flows[name] for name in flows.keys() & {destination.id}},
    )
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", destination.id)
    known = flows.get(destination.id)
    options = source_options(destination, settings, known, begin=begin.start)
    records = spark.readStream.format("kafka").options(**options).load()
    if is_realtime:
        events = records.selectExpr(PACKED).selectExpr(AND_NOTHING)
    else:
        events = records.select(*COLUMNS_IN)
    return write_outcomes(
        map_arrow(events, partial(deliver_stream, plan=plan), SCHEMA_OUT),
        name=destination.id,
        bootstrap_servers=settings.bootstrap_servers,
        checkpoint=checkpoint,
        trigger_interval=f"{round(1000 * _trigger_interval_s(lane, settings))} milliseconds",
        is_realtime=is_realtime,
    )


def warm_up(spark: SparkSession, settings: DeliverySettings) -> None:
    """Run a micro-batch that sends nothing, so that the first event finds everything loaded.

    It reads the configuration, which is never empty when there is a lane, and drops it in Python.
    """
    folder = settings.home / "warm-up"
    shutil.rmtree(folder, ignore_errors=True)
    options = stream_options(settings.bootstrap_servers, CONFIG, "earliest")
    records = spark.readStream.format("kafka").options(**options).load().select(*COLUMNS_IN)
    query = (
        map_arrow(records, _drop, SCHEMA_OUT)
        .writeStream.format("kafka")
        .options(**sink_options(settings.bootstrap_servers, name="warm-up"))
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(_WARM_UP_TIMEOUT_S)
    query.stop()


def source_options(
    destination: Destination,
    settings: DeliverySettings,
    known: FlowRecord | None = None,
    *,
    begin: Position | None = None,
) -> dict[str, str]:
    """How the Kafka source reads for a destination, of which something may be known.

    A lane that has a checkpoint goes on from there, wherever it would begin.
    """
    start = destination.start if begin is None else begin
    options = {
        **stream_options(settings.bootstrap_servers, stream_topic(destination.stream), start),
        "maxOffsetsPerTrigger": str(events_max(destination, settings, known)),
        "groupIdPrefix": f"hifi-{destination.stream}-{destination.name}",
        "kafka.fetch.max.wait.ms": str(_FETCH_WAIT_MS),
    }
    if destination.latency == "realtime":
        # Real time has no bounds and no linger: Spark refuses the options.
        del options["maxOffsetsPerTrigger"]
    elif destination.linger_s:
        # Whatever comes first: enough for a batch, or the wait is over.
        options["minOffsetsPerTrigger"] = str(destination.batch_count_max)
        options["maxTriggerDelay"] = f"{ceil(destination.linger_s * 1000)}ms"
    return options


def events_max(
    destination: Destination, settings: DeliverySettings, known: FlowRecord | None = None
) -> int:
    """The most events of a micro-batch: what the destination can take in half of its time box."""
    usual_ms = (known.flow.concurrency.mean_ms if known else 0.0) or _USUAL_MS
    rounds = max(1, min(_ROUNDS_MAX, int(500 * settings.time_box_s / usual_ms)))
    batch_count = 1 if destination.body_format == "single" else destination.batch_count_max
    limits = [
        settings.micro_batch_events_max,
        batch_count * destination.parallel_max * rounds,
    ]
    if destination.rate_per_s is not None:
        limits.append(ceil(destination.rate_per_s * _RATE_SPAN_S))
    return min(limits)


def _trigger_interval_s(lane: Lane, settings: DeliverySettings) -> float:
    if lane.destination.latency == "realtime":
        return settings.realtime_interval_s
    return settings.time_box_s * _DICE.uniform(*_REST_BOXES) if lane.is_resting else 0.0


def _begin(destination: Destination, settings: DeliverySettings) -> _Begin:
    """From where a lane goes on, and up to where its events may have been sent already.

    By its own checkpoint, or that of its other latency if that is where it ran last; if both are
    lost, with their machine perhaps, by what it had told Kafka, and then all that is in the stream
    by now may have been sent.
    """
    other_latency: Latency = "micro-batch" if destination.latency == "realtime" else "realtime"
    own = checkpoint_of(settings, destination.id, destination.latency)
    other = checkpoint_of(settings, destination.id, other_latency)
    maybe_sent = _maybe_sent(own, destination, destination.latency, settings)
    at = _furthest(position(own), position(other))
    if not at:
        known = _told(destination, settings)
        if known.position:
            start = {**dict.fromkeys(known.ends, EARLIEST), **known.position}
            return _Begin(known.position, start, _furthest(maybe_sent, known.ends))
        # A new one has passed nothing, which is true wherever it begins; but at the end of a log it
        # would look to lag tools as if all of it were still to come.
        is_at_end = destination.start == "latest"
        at = {} if is_at_end else {KafkaPartition(stream_topic(destination.stream), 0): 0}
    if not is_behind(own, other):
        return _Begin(at, None, maybe_sent)
    # Also of a lane that moved and died before it had written anything down.
    sent_before = _maybe_sent(other, destination, other_latency, settings)
    set_aside(own)
    return _Begin(at, position(other), _furthest(maybe_sent, sent_before))


def _maybe_sent(
    checkpoint: Path, destination: Destination, latency: Latency, settings: DeliverySettings
) -> Position:
    """What the last run may have sent beyond its position.

    A micro-batch writes down beforehand how far it goes. Real time does not, so whatever is in the
    stream by now may have been sent.
    """
    if latency == "micro-batch":
        return replay_until(checkpoint)
    return _told(destination, settings).ends if checkpoint.exists() else {}


def _told(destination: Destination, settings: DeliverySettings) -> Told:
    topics = [stream_topic(destination.stream)]
    return told(settings.bootstrap_servers, destination.id, topics)


def _furthest(one: Position, other: Position) -> Position:
    return {where: max(one.get(where, 0), other.get(where, 0)) for where in {**one, **other}}


def _drop(batches: Iterable[Any]) -> Iterator[Any]:
    for _ in batches:
        pass
    yield from ()
