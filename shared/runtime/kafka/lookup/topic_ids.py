"""Asks Kafka for the ids of topics: a topic that is deleted and created again has a new id.

The version of the client's own metadata request has no ids.
"""

from base64 import urlsafe_b64encode
from collections.abc import Collection
from io import BytesIO
from typing import Any, Self

from aiokafka.protocol.api import RequestStruct
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.types import (
    AbstractType,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from shared.runtime.kafka.log_client import LogClient

_NO_ID = bytes(16)


async def topic_ids(log: LogClient, topics: Collection[str]) -> dict[str, str]:
    """Return ids in the format of Kafka's tools, without topics that are missing or unknown."""
    if not topics:
        return {}
    answer = await log.ask(TopicIdsRequest(sorted(topics)))
    ids: dict[str, str] = answer.ids
    return ids


class _Id(AbstractType[bytes]):  # type: ignore[misc]
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(len(_NO_ID))


_TEXT, _NUMBERS = CompactString("utf-8"), CompactArray(Int32)
_TAGS = ("tags", TaggedFields)
_PARTITION = (
    ("error", Int16),
    ("number", Int32),
    ("leader", Int32),
    ("leader_epoch", Int32),
    ("replicas", _NUMBERS),
    ("in_sync", _NUMBERS),
    ("offline", _NUMBERS),
    _TAGS,
)
_TOPIC = (
    ("error", Int16),
    ("name", _TEXT),
    ("id", _Id),
    ("is_internal", Boolean),
    ("partitions", CompactArray(*_PARTITION)),
    ("operations", Int32),
    _TAGS,
)
_BROKER = (("node", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT), _TAGS)


class TopicIdsAnswer:
    """A broker's answer about topics."""

    SCHEMA = Schema(
        ("throttled_ms", Int32),
        ("brokers", CompactArray(*_BROKER)),
        ("cluster", _TEXT),
        ("controller", Int32),
        ("topics", CompactArray(*_TOPIC)),
        ("operations", Int32),
        _TAGS,
    )

    def __init__(self, ids: dict[str, str]) -> None:
        self.ids = ids

    @classmethod
    def decode(cls, answer: BytesIO) -> Self:
        topics = cls.SCHEMA.decode(answer)[4]
        return cls(
            {
                name: urlsafe_b64encode(raw).decode().rstrip("=")
                for code, name, raw, *_ in topics
                if not code and raw != _NO_ID
            }
        )


class TopicIdsRequest(RequestStruct):  # type: ignore[misc]
    """Asks Kafka 2.8 or newer for ids. Asking for a topic does not create it."""

    API_KEY = MetadataRequest.API_KEY
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = TopicIdsAnswer
    SCHEMA = Schema(
        ("topics", CompactArray(("id", _Id), ("name", _TEXT), _TAGS)),
        ("makes_topics", Boolean),
        ("tells_cluster_operations", Boolean),
        ("tells_operations", Boolean),
        _TAGS,
    )

    def __init__(self, topics: Collection[str]) -> None:
        super().__init__([(_NO_ID, name, {}) for name in topics], False, False, False, {})

    def prepare(self, _: Any) -> Self:
        return self
