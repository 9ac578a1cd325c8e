"""Decides how a refusal is told: one RFC 9457 problem, found by its code in one catalogue.

Codes are part of the API: a client switches on them. Add codes, never change what one means.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

CONTENT_TYPE = b"application/problem+json"


@dataclass(frozen=True, slots=True)
class Kind:
    """What all problems of one code have in common."""

    status: int
    title: str


CATALOGUE: Mapping[str, Kind] = {
    "invalid_json": Kind(400, "The body is not valid JSON"),
    "invalid_utf8": Kind(400, "The body is not valid UTF-8"),
    "too_deep": Kind(400, "The JSON is nested too deeply"),
    "not_events": Kind(400, "The body holds no events"),
    "ambiguous_body": Kind(400, "The body can be read in two ways"),
    "bad_header": Kind(400, "A request header is not usable"),
    "unknown_stream": Kind(404, "There is no such stream"),
    "not_found": Kind(404, "There is nothing at this path"),
    "method_not_allowed": Kind(405, "This path does not take this method"),
    "body_timeout": Kind(408, "The body did not arrive in time"),
    "body_too_large": Kind(413, "The body is too large"),
    "too_many_events": Kind(413, "The request holds too many events"),
    "unsupported_media_type": Kind(415, "This content type is not taken"),
    "unsupported_encoding": Kind(415, "This content encoding is not taken"),
    "all_rejected": Kind(422, "No event was accepted"),
    "internal_error": Kind(500, "The gateway made a mistake"),
    "overloaded": Kind(503, "The gateway holds as much as it may"),
    "not_stored": Kind(503, "No event was stored"),
    "outcome_unknown": Kind(504, "It is not known whether the events were stored"),
}


class Problem(Exception):  # noqa: N818 - RFC 9457 calls it a problem
    """A request that is answered with a problem document instead of a result."""

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

    def to_json(self, request_id: str) -> bytes:
        document: dict[str, Any] = {
            "type": f"urn:hifi:problem:{self.code}",
            "title": CATALOGUE[self.code].title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "request_id": request_id,
        }
        if self.pointer is not None:
            document["pointer"] = self.pointer
        return msgspec.json.encode({**document, **self.members})
