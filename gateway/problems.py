"""Describes a refusal as an RFC 9457 problem; one catalogue lists all codes.

Codes are part of the API: clients switch on them. Add codes, never change their meaning.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

CONTENT_TYPE = b"application/problem+json"
# The member of a route in the API's document that lists problems specific to that route.
PROBLEMS_MEMBER = "x-problems"


@dataclass(frozen=True, slots=True)
class Kind:
    """The status and title that all problems with one code share."""

    status: int
    title: str


_QUOTA = Kind(429, "The tenant has used up its quota")

CATALOGUE: Mapping[str, Kind] = {
    "invalid_http": Kind(400, "This is not HTTP/1.1"),
    "invalid_json": Kind(400, "The body is not valid JSON"),
    "invalid_utf8": Kind(400, "The body is not valid UTF-8"),
    "invalid_encoding": Kind(400, "The body does not match its Content-Encoding"),
    "too_deep": Kind(400, "The JSON is nested too deeply"),
    "not_events": Kind(400, "The body contains no events"),
    "ambiguous_body": Kind(400, "The body is ambiguous"),
    "bad_header": Kind(400, "A request header is invalid"),
    "bad_path": Kind(400, "The path is invalid"),
    "bad_query": Kind(400, "The query is invalid"),
    "bad_request_id": Kind(400, "This is not a request id"),
    "bad_object": Kind(400, "The object is invalid"),
    "unauthenticated": Kind(401, "The caller is unknown"),
    "bad_signature": Kind(401, "The signature is wrong"),
    "scope_missing": Kind(403, "The caller may not do this"),
    "stream_forbidden": Kind(403, "The caller may not use this stream"),
    "origin_forbidden": Kind(403, "The page may not use this key"),
    "proxied_without_keys": Kind(403, "A gateway without keys refuses requests from proxies"),
    "unknown_stream": Kind(404, "There is no such stream"),
    "unknown_destination": Kind(404, "There is no such destination"),
    "unknown_pipeline": Kind(404, "There is no such pipeline"),
    "unknown_table": Kind(404, "There is no such table"),
    "unknown_channel": Kind(404, "There is no such channel"),
    "unknown_row": Kind(404, "There is no such row"),
    "unknown_key": Kind(404, "There is no such key"),
    "unknown_tenant": Kind(404, "There is no such tenant"),
    "unknown_event": Kind(404, "There is no such event"),
    "unknown_replay": Kind(404, "There is no such replay"),
    "unknown_receipt": Kind(404, "There is no receipt for this request"),
    "receipt_not_yet": Kind(404, "There is no receipt for this request yet"),
    "not_found": Kind(404, "There is nothing at this path"),
    "method_not_allowed": Kind(405, "This path does not support this method"),
    "head_timeout": Kind(408, "The headers did not arrive in time"),
    "body_timeout": Kind(408, "The body did not arrive in time"),
    "idempotency_key_in_use": Kind(409, "The first request with this key is not answered yet"),
    "stream_in_use": Kind(409, "The stream is still in use"),
    "shards_in_use": Kind(409, "These shards would place existing events elsewhere"),
    "pipeline_in_use": Kind(409, "The pipeline's name is in use"),
    "table_in_use": Kind(409, "The table or its name is in use"),
    "table_full": Kind(409, "The table is full"),
    "secret_changed": Kind(409, "The secret's placeholder is not valid here"),
    "redrive_overtaken": Kind(409, "Another redrive of the stream has begun"),
    "replay_in_use": Kind(409, "Another replay has this id"),
    "events_gone": Kind(409, "Kafka has deleted events in the span"),
    "not_resent": Kind(409, "The event is already on its way to the destination"),
    "bound_reached": Kind(409, "The tenant has reached its bound"),
    "key_in_use": Kind(409, "The key exists already"),
    "changed_meanwhile": Kind(412, "The object does not meet the condition"),
    "body_too_large": Kind(413, "The body is too large"),
    "decompressed_too_large": Kind(413, "The decompressed body is too large"),
    "too_many_events": Kind(413, "The request holds too many events"),
    "unsupported_media_type": Kind(415, "This content type is not supported"),
    "unsupported_encoding": Kind(415, "This content encoding is not supported"),
    "misdirected": Kind(421, "The gateway does not serve this host name"),
    "all_rejected": Kind(422, "No event was accepted"),
    "strict_rejected": Kind(422, "At least one event is invalid, so none was accepted"),
    "bad_pipeline": Kind(422, "The pipeline is invalid"),
    "bad_row": Kind(422, "The row is invalid"),
    "target_forbidden": Kind(422, "Hifi may not send to this address"),
    "secrets_off": Kind(422, "This Hifi cannot store secrets"),
    "idempotency_key_reused": Kind(422, "The key was used for another request"),
    "quota_requests": _QUOTA,
    "quota_events": _QUOTA,
    "quota_bytes": _QUOTA,
    "tenant_in_flight": Kind(429, "The tenant has too many bytes in flight"),
    "resend_rate": Kind(429, "The tenant resends events too often"),
    "channel_test_rate": Kind(429, "The tenant tests its channels too often"),
    "too_many_watchers": Kind(429, "There are too many watchers"),
    "head_too_large": Kind(431, "The headers are too large"),
    "internal_error": Kind(500, "The gateway failed"),
    "unknown_transfer_coding": Kind(501, "The transfer coding is unknown"),
    "overloaded": Kind(503, "The gateway is overloaded"),
    "not_stored": Kind(503, "No event was stored"),
    "kafka_unavailable": Kind(503, "Kafka does not answer"),
    "too_few_brokers": Kind(503, "Kafka has too few brokers for the required copies"),
    "table_not_ready": Kind(503, "This gateway's copy of the table is not ready yet"),
    "stale": Kind(503, "The known value is older than the request allows"),
    "not_tried": Kind(503, "The trial did not finish in time"),
    "search_unfinished": Kind(503, "Not everything could be read in time"),
    "outcome_unknown": Kind(504, "The events may or may not have been stored"),
}
# Registered with IANA (draft-ietf-httpapi-ratelimit-headers).
_QUOTA_TYPE = "https://iana.org/assignments/http-problem-types#quota-exceeded"


class Problem(Exception):  # noqa: N818 - RFC 9457 calls it a problem
    """A request whose answer is a problem document instead of a result."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        pointer: str | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.pointer = pointer
        self.headers = headers
        self.members = members or {}

    @property
    def status(self) -> int:
        return CATALOGUE[self.code].status

    @property
    def type(self) -> str:
        return _QUOTA_TYPE if CATALOGUE[self.code] is _QUOTA else f"urn:hifi:problem:{self.code}"

    def to_json(self, request_id: str) -> bytes:
        document: dict[str, Any] = {
            "type": self.type,
            "title": CATALOGUE[self.code].title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "request_id": request_id,
        }
        if self.pointer is not None:
            document["pointer"] = self.pointer
        return msgspec.json.encode({**document, **self.members})


def pointer_to(setting: str) -> str:
    """Return the JSON pointer of a setting such as `auth.token`."""
    return "/" + setting.replace(".", "/")


def bad_credential(detail: str) -> Problem:
    """Return the refusal of a key, token or certificate that cannot be trusted."""
    challenge = ((b"www-authenticate", b'Bearer realm="hifi", error="invalid_token"'),)
    return Problem("unauthenticated", detail, headers=challenge)
