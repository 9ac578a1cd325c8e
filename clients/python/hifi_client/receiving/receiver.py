"""Receives deliveries of Hifi: checks them, skips duplicates, and answers for each event."""

import json
import logging
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from hifi_client.errors import DeliveryError, RefusedError
from hifi_client.receiving.seen import Seen, SeenInMemory
from hifi_client.receiving.signatures import TOLERANCE_S, Verifier

log = logging.getLogger("hifi_client")

Event: TypeAlias = dict[str, Any]
Take: TypeAlias = Callable[[Event], object]
# A request has at most the destination's `batch_bytes_max`, which may be up to 64 MB.
BODY_BYTES_MAX = 64_000_000
# The status for an event that Hifi should send again, and for one that it should not.
_LATER, _NEVER = 503, 422
_GZIP = 16 + zlib.MAX_WBITS


class Reply(NamedTuple):
    """An answer, with its parts in the order that Flask expects."""

    body: bytes
    status: int
    headers: dict[str, str]


@dataclass
class Delivery:
    """One request of Hifi. Events that were taken before are not in `events`."""

    events: list[Event]
    id: str
    stream: str
    attempt: int
    # Whether Hifi says that an earlier copy may have arrived.
    is_maybe_duplicate: bool
    # The place of each of `events` in the batch, and its identity in `_seen`.
    _places: list[int] = field(repr=False)
    _names: list[str | None] = field(repr=False)
    _count: int = field(repr=False)
    _seen: Seen = field(repr=False)

    def reply(self, failed: Mapping[int, int] | None = None) -> Reply:
        """Return the answer; `failed` maps positions in `events` to statuses of failed events.

        With 422 an event becomes a dead letter; with 503 Hifi sends it again.
        """
        statuses = failed or {}
        self._seen.add(
            name for nth, name in enumerate(self._names) if nth not in statuses and name is not None
        )
        if not statuses:
            return _reply(200, {"taken": len(self.events)})
        if len(statuses) == self._count and set(statuses.values()) == {_LATER}:
            # Everything failed, so answer for the whole request: Hifi then slows down.
            return _reply(_LATER, {"detail": "No event could be taken now."})
        entries = [{"index": self._places[n], "status": code} for n, code in statuses.items()]
        return _reply(207, {"failed": entries})


class Receiver:
    """Receives for one destination, with its `secrets`; None accepts unsigned requests."""

    def __init__(
        self,
        secrets: str | Iterable[str] | None,
        *,
        seen: Seen | None = None,
        tolerance_s: float = TOLERANCE_S,
    ) -> None:
        texts = [secrets] if isinstance(secrets, str) else secrets
        self._verifier = None if texts is None else Verifier(texts, tolerance_s=tolerance_s)
        self._seen = SeenInMemory() if seen is None else seen

    def open(self, headers: Mapping[str, str], body: bytes) -> Delivery:
        """Return a request's new events; raise DeliveryError if it is not a valid delivery."""
        found = {str(name).lower(): str(value) for name, value in headers.items()}
        body = _unpacked(found.get("content-encoding", ""), body)
        if self._verifier is not None:
            self._verifier.verify(found, body, now_s=time.time())
        events = _events(found, body)
        names = [_name(event) for event in events]
        known = self._seen.known(name for name in names if name is not None)
        new: dict[str | None, int] = {}
        places = []
        for nth, name in enumerate(names):
            if name is None or (name not in known and new.setdefault(name, nth) == nth):
                places.append(nth)
        return Delivery(
            [events[nth] for nth in places],
            id=found.get("webhook-id", ""),
            stream=found.get("hifi-stream", ""),
            attempt=_number(found.get("hifi-attempt", "1")),
            is_maybe_duplicate="hifi-maybe-duplicate" in found,
            _places=places,
            _names=[names[nth] for nth in places],
            _count=len(events),
            _seen=self._seen,
        )

    def answer(self, headers: Mapping[str, str], body: bytes, take: Take) -> Reply:
        """Pass each new event to `take`, and return the answer.

        If `take` raises, Hifi sends the event again; after RefusedError it is a dead letter.
        """
        try:
            delivery = self.open(headers, body)
        except DeliveryError as error:
            return refusal(error)
        failed: dict[int, int] = {}
        for nth, event in enumerate(delivery.events):
            try:
                take(event)
            except Exception as error:  # noqa: BLE001 - after any error, the event is not taken
                failed[nth] = status_of(error)
        return delivery.reply(failed)


def status_of(error: Exception) -> int:
    """Return the status for an event whose `take` raised this error."""
    if isinstance(error, RefusedError):
        return _NEVER
    log.error("An event was not taken; it will be sent again.", exc_info=error)
    return _LATER


def refusal(error: DeliveryError) -> Reply:
    log.warning("A delivery was refused: %s", error)
    return _reply(error.status, {"detail": str(error)})


def _reply(status: int, said: Mapping[str, object]) -> Reply:
    return Reply(json.dumps(said).encode(), status, {"content-type": "application/json"})


def _events(headers: Mapping[str, str], body: bytes) -> list[Event]:
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if media_type == "application/x-ndjson":
            found = [json.loads(line) for line in body.splitlines() if line.strip()]
        else:
            said = json.loads(body)
            found = said if isinstance(said, list) else [said]
    except (ValueError, RecursionError) as error:
        raise DeliveryError(400, f"The body contains no events ({error}).") from error
    if not all(isinstance(event, dict) for event in found):
        raise DeliveryError(400, "An event must be a JSON object.")
    return found


def _name(event: Event) -> str | None:
    """Return an event's identity; for CloudEvents it includes the source."""
    name = event.get("id")
    if not isinstance(name, str):
        return None
    return f"{event.get('source')} {name}" if "specversion" in event else name


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 1


def _unpacked(encoding: str, body: bytes) -> bytes:
    """Return the signed body. Some frameworks decompress it already, and keep the header."""
    if encoding == "gzip" and body.startswith(b"\x1f\x8b"):
        unpacker = zlib.decompressobj(_GZIP)
        try:
            plain = unpacker.decompress(body, BODY_BYTES_MAX)
        except zlib.error as error:
            raise DeliveryError(400, f"The body is not valid gzip ({error}).") from error
        if unpacker.unconsumed_tail:
            raise DeliveryError(413, f"The body has more than {BODY_BYTES_MAX:,} bytes.")
        return plain
    if encoding == "zstd" and body.startswith(b"\x28\xb5\x2f\xfd"):
        # Not 4xx, which would make the events dead letters before somebody corrects the setting.
        raise DeliveryError(503, "This receiver supports only gzip: set the destination to that.")
    return body
