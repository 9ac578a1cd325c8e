"""Spells two requests to a group's coordinator that the Kafka client has only without fences."""

from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

_STRING = CompactString("utf-8")
_TAGS = ("tags", TaggedFields)


def _topics(partitions: CompactArray) -> tuple[str, CompactArray]:
    """The member of a message that says something of Kafka partitions, by topic."""
    return "topics", CompactArray(("topic", _STRING), ("partitions", partitions), _TAGS)


# aiokafka has no annotations.
class _FencedCommitResponse(Response):  # type: ignore[misc]
    API_KEY = 28
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        _topics(CompactArray(("partition", Int32), ("error_code", Int16), _TAGS)),
        _TAGS,
    )


class _FencedCommit(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 28
    API_VERSION = 3
    RESPONSE_TYPE = _FencedCommitResponse
    SCHEMA = Schema(
        ("transactional_id", _STRING),
        ("group_id", _STRING),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("generation_id", Int32),
        ("member_id", _STRING),
        ("group_instance_id", _STRING),
        _topics(
            CompactArray(
                ("partition", Int32),
                ("offset", Int64),
                ("leader_epoch", Int32),
                ("metadata", _STRING),
                _TAGS,
            )
        ),
        _TAGS,
    )


class FencedCommitRequest(Request[_FencedCommit]):  # type: ignore[misc]
    """Commits to a group within a transaction, as a member of it, or as nobody."""

    API_KEY = 28

    def __init__(
        self,
        transactional_id: str,
        group: str,
        producer: tuple[int, int],
        member: tuple[int, str],
        topics: list[tuple[str, list[tuple[int, int]]]],
    ) -> None:
        self._fields = (transactional_id, group, *producer, *member, None)
        self._topics: list[Any] = [
            (topic, [(number, offset, -1, "", {}) for number, offset in offsets], {})
            for topic, offsets in topics
        ]

    def build(self, request_struct_class: type[_FencedCommit]) -> _FencedCommit:
        return request_struct_class(*self._fields, self._topics, {})


class _StableFetchResponse(Response):  # type: ignore[misc]
    API_KEY = 9
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        _topics(
            CompactArray(
                ("partition", Int32),
                ("offset", Int64),
                ("leader_epoch", Int32),
                ("metadata", _STRING),
                ("error_code", Int16),
                _TAGS,
            )
        ),
        ("error_code", Int16),
        _TAGS,
    )


class _StableFetch(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 9
    API_VERSION = 7
    RESPONSE_TYPE = _StableFetchResponse
    SCHEMA = Schema(
        ("group_id", _STRING),
        _topics(CompactArray(Int32)),
        ("require_stable", Boolean),
        _TAGS,
    )


class StableFetchRequest(Request[_StableFetch]):  # type: ignore[misc]
    """Positions of a group; one that is in a transaction is an error until that ends.

    All that are asked for must be named: Kafka does not list what has never been committed before.
    """

    API_KEY = 9

    def __init__(self, group: str, topics: list[tuple[str, list[int]]]) -> None:
        self._group = group
        self._topics: list[Any] = [(topic, numbers, {}) for topic, numbers in topics]

    def build(self, request_struct_class: type[_StableFetch]) -> _StableFetch:
        return request_struct_class(self._group, self._topics, True, {})
