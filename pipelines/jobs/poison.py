"""Reads the one event that a pipeline cannot process."""

from shared.event.record import KafkaPartition, Origin, RecordIn
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.setup_error import KafkaUnavailableError

_WAIT_MS = 500


async def record_at(log: LogClient, where: KafkaPartition, offset: int) -> RecordIn | None:
    """Return the record; None if the offset has one of Kafka's own markers instead."""
    node = log.leaders([where]).get(where)
    if node is None:
        raise KafkaUnavailableError(f"{where.topic} has no leader just now")
    answer = (await log.fetch(node, {where: offset}, wait_ms=_WAIT_MS))[where]
    if answer.error is not None:
        raise answer.error
    if answer.reached <= offset:
        raise KafkaUnavailableError(f"Kafka returns nothing of {where.topic} at {offset}")
    record = next((each for each in answer.records if each.offset == offset), None)
    if record is None:
        return None
    headers = tuple((name, raw or b"") for name, raw in record.headers)
    return RecordIn(
        Origin(*where, offset), record.timestamp, record.key, record.value or b"", headers
    )
