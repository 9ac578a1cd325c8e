"""Describes a request to a destination, and writes it as HTTP/1.1 or as HTTP/2."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from delivery.http.connection import ExchangeError
from delivery.http.target import RequestTarget
from shared.retry.attempt import Failure

LABEL = "hifi-maybe-duplicate"
_LABEL_LINE = f"{LABEL}: 1\r\n".encode()

# Returns whether another process may already have sent the same request.
IsLate: TypeAlias = Callable[[], bool]


class RequestHead:
    """The first lines of all requests to a target."""

    def __init__(self, target: RequestTarget, headers: Mapping[str, str]) -> None:
        lines = header_lines({"host": target.authority, **headers})
        self.text = b"POST %b HTTP/1.1\r\n%b" % (target.path.encode(), lines)
        self.fields = [
            (b":method", b"POST"),
            (b":authority", target.authority.encode()),
            (b":scheme", b"https" if target.is_secure else b"http"),
            (b":path", target.path.encode()),
            *_fields(headers),
        ]


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A request, without its first lines."""

    headers: Mapping[str, str]
    body: bytes
    is_late: IsLate = lambda: False

    def text(self, head: RequestHead, lines: bytes, *, may_be_duplicate: bool) -> bytes:
        """Return the request in HTTP/1.1; `lines` are its own headers."""
        label = _LABEL_LINE if self._needs_label(may_be_duplicate=may_be_duplicate) else b""
        return b"".join((head.text, lines, label, b"\r\n", self.body))

    def fields(self, head: RequestHead, *, may_be_duplicate: bool) -> list[tuple[bytes, bytes]]:
        """Return the headers of the request in HTTP/2."""
        needs_label = self._needs_label(may_be_duplicate=may_be_duplicate)
        headers = {**self.headers, LABEL: "1"} if needs_label else self.headers
        length = (b"content-length", b"%d" % len(self.body))
        return [*head.fields, *_fields(headers), length]

    def _needs_label(self, *, may_be_duplicate: bool) -> bool:
        # Asked right before sending, as the process may have been frozen since it began to connect.
        return LABEL not in self.headers and (may_be_duplicate or self.is_late())


def header_lines(headers: Mapping[str, str]) -> bytes:
    """Return headers as lines; ExchangeError if a request cannot have one of them."""
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if text.count("\n") != len(headers) or text.count("\r") != len(headers):
        raise ExchangeError(Failure.REQUEST_UNBUILDABLE, "a header holds a line break")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise ExchangeError(Failure.REQUEST_UNBUILDABLE, "a header is not Latin-1") from error


def _fields(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return headers as HTTP/2 has them: names in lower case."""
    return [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
    ]
