"""Asks which features a Kafka cluster has on, which aiokafka cannot: ApiVersions 3 (KIP-584)."""

from io import BytesIO
from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response, ResponseHeader_v0
from aiokafka.protocol.types import (
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

_API_VERSIONS = 18
_FINALIZED_FEATURES_TAG = 2
_TAGS = ("tags", TaggedFields)
_TEXT = CompactString("utf-8")
_FEATURES = CompactArray(("name", _TEXT), ("level", Int16), ("level_min", Int16), _TAGS)


class ApiVersionsResponse(Response):  # type: ignore[misc]
    """What a broker can do; the cluster's features are in a tag of it."""

    API_KEY, API_VERSION = _API_VERSIONS, 3
    SCHEMA = Schema(
        ("error_code", Int16),
        ("kinds", CompactArray(("kind", Int16), ("min", Int16), ("max", Int16), _TAGS)),
        ("throttle_time_ms", Int32),
        _TAGS,
    )


class _ApiVersions3(RequestStruct):  # type: ignore[misc]
    API_KEY, API_VERSION, FLEXIBLE_VERSION = _API_VERSIONS, 3, True
    RESPONSE_TYPE = ApiVersionsResponse
    SCHEMA = Schema(("software", _TEXT), ("version", _TEXT), _TAGS)

    def parse_response_header(self, answer: BytesIO) -> Any:
        # The one answer with an old header: who asks does not know yet what the broker can do.
        return ResponseHeader_v0.decode(answer)


class ApiVersionsRequest(Request[_ApiVersions3]):  # type: ignore[misc]
    """Asks a broker what it can do."""

    API_KEY = _API_VERSIONS

    def build(self, struct: type[_ApiVersions3]) -> _ApiVersions3:
        return struct("hifi", "hifi", {})


def finalized_features(response: ApiVersionsResponse) -> dict[str, int] | None:
    """Each finalized feature's level; None when the broker refused to say."""
    if response.error_code:
        return None
    raw = response.tags.get(_FINALIZED_FEATURES_TAG)
    return {name: level for name, level, *_ in _FEATURES.decode(BytesIO(raw))} if raw else {}
