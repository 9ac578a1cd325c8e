"""Makes a dead letter of the one event that a pipeline cannot work on."""

from pipelines.jobs.letters import letter_of
from shared.config.pipeline import Pipeline
from shared.event.record import KafkaPartition, Origin, RecordIn, RecordOut
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
    headers = tuple((name, raw or b"") for name, raw in found.headers)
    record = RecordIn(
        Origin(*where, offset), found.timestamp, found.key, found.value or b"", headers
    )
    return letter_of(record, pipeline.lane_id, reason=reason, why=why)
