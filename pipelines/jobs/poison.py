"""Makes a dead letter of the one event that a pipeline cannot work on."""

from shared.config.pipeline import Pipeline
from shared.event.envelope import History, dead_headers, dead_value, open_stream_record
from shared.event.record import KafkaPartition, Origin, RecordIn, RecordOut
from shared.event.topics import DEAD
from shared.runtime.clock import now_ms
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.setup_error import KafkaUnavailableError

_WAIT_MS = 500


async def dead_letter(
    log: LogClient, where: KafkaPartition, offset: int, pipeline: Pipeline, *, reason: str, why: str
) -> RecordOut | None:
    """None if there is no event: the offset is a mark of Kafka's own."""
    node = log.leaders([where]).get(where)
    if node is None:
        raise KafkaUnavailableError(f"{where.topic} has no leader just now")
    answer = (await log.fetch(node, {where: offset}, wait_ms=_WAIT_MS))[where]
    if answer.error is not None:
        raise answer.error
    if answer.reached <= offset:
        raise KafkaUnavailableError(f"nothing comes of {where.topic} at {offset}")
    found = next((each for each in answer.records if each.offset == offset), None)
    if found is None:
        return None
    record = RecordIn(
        Origin(*where, offset),
        found.timestamp,
        found.key,
        found.value or b"",
        tuple((name, raw or b"") for name, raw in found.headers),
    )
    at_ms, envelope = now_ms(), open_stream_record(record)
    history = History(
        attempt_count=1,
        park_count=0,
        first_attempt_at_ms=at_ms,
        deadline_at_ms=at_ms,
        not_before_ms=at_ms,
        cause=reason,
        last_detail=why,
        last_attempt_at_ms=at_ms,
    )
    lane = pipeline.lane_id
    headers = dead_headers(envelope, lane, history, reason=reason, dead_at_ms=at_ms)
    return RecordOut(DEAD, lane.encode(), dead_value(envelope.value), headers)
