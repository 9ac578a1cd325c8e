"""Follows the state topic, by which machines share the known state of each destination."""

from collections.abc import Mapping

from shared.event.topics import STATE
from shared.flow.flow_record import FlowRecord, folded, open_flow_record
from shared.runtime.clock import now_ms
from shared.runtime.kafka.topic_feed import TopicFeed

# A change that one machine has learned reaches all others within 2 s.
_GATHER_S = 0.25


class StateFeed(TopicFeed[dict[str, FlowRecord]]):
    """The newest record of each destination, merged with better knowledge from other machines."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(
            bootstrap_servers, STATE, empty={}, fold=_with, draft=dict, gather_s=_GATHER_S
        )

    @property
    def flows(self) -> Mapping[str, FlowRecord]:
        return self.value


def _with(known: dict[str, FlowRecord], key: bytes, value: bytes | None) -> dict[str, FlowRecord]:
    destination_id, record = key.decode(), open_flow_record(value)
    if record is None:
        # The record was removed, or written by an unknown version: the state is unknown.
        known.pop(destination_id, None)
    else:
        known[destination_id] = folded(known.get(destination_id), record, now_ms=now_ms())
    return known
