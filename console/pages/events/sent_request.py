"""Shows the request of an attempt, rebuilt from its receipt and its destination's settings.

Hifi does not keep sent requests. The page says so, and names the unknown headers.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from console.parts.markup import Safe, tag
from shared.config.credentials import Basic, Bearer, OAuth2
from shared.config.destination import BodyFormat, Destination
from shared.proof.receipt import Receipt, ReceiptOutcome
from shared.wording import plural

MASK = "(masked)"
# The maximum number of headers of a destination to show, and of characters of each.
HEADERS_MAX, VALUE_CHARS_MAX = 10, 100
_URL_CHARS_MAX = 300
# Headers with such names are masked, because somebody may have put a secret into a plain header.
_LIKE_A_SECRET = re.compile(r"auth|cookie|key|passw|secret|session|signature|token", re.IGNORECASE)
# The content type of a body, and a description of its content.
_BODIES: dict[BodyFormat, tuple[str, str]] = {
    "json": ("application/json", "a JSON array of {}"),
    "cloudevents": ("application/cloudevents-batch+json", "a JSON array of {} as CloudEvents"),
    "ndjson": ("application/x-ndjson", "a line for each of {}"),
    "single": ("application/json", "{} by itself"),
}


@dataclass(frozen=True, slots=True)
class SentRequest:
    """The facts in a receipt about one of the requests of its round."""

    destination_id: str
    batch_id: str
    event_count: int
    attempt: int
    # The first of the round is 1.
    try_number: int
    started_at_ms: int

    @classmethod
    def of_failed(cls, receipt: Receipt, nth: int) -> "SentRequest":
        failed = receipt.failed_tries[nth]
        return cls._of(receipt, nth + 1, failed.at_ms - failed.took_ms)

    @classmethod
    def of_last(cls, receipt: Receipt) -> "SentRequest | None":
        """Return the last request; None if there was none, or if it is among the failed ones."""
        count = len(receipt.failed_tries)
        if not receipt.batch_id or (count and receipt.outcome is not ReceiptOutcome.DELIVERED):
            return None
        return cls._of(receipt, count + 1, receipt.started_at_ms)

    @classmethod
    def _of(cls, receipt: Receipt, try_number: int, started_at_ms: int) -> "SentRequest":
        return cls(
            receipt.destination_id,
            receipt.batch_id,
            receipt.event_count,
            receipt.attempt,
            try_number,
            started_at_ms,
        )


def request_shown(sent: SentRequest, to: Destination) -> Safe:
    """Show a request's first line, headers and kind of body; a click on the summary opens them."""
    lines = [
        f"POST {shown_url(to.url)}",
        *(f"{name}: {value}" for name, value in headers(sent, to)),
    ]
    return tag(
        "details",
        tag("summary", "The request"),
        tag("pre", tag("code", "\n".join(lines)), tabindex="0", role="region",
            aria_label=f"Request {sent.try_number} of attempt {sent.attempt} at {to.id}"),
        tag("p", f"Body: {_body(sent, to)}.", class_="quiet"),
        class_="request",
    )  # fmt: skip


def request_note() -> Safe:
    """Return the note on how exact the shown requests are."""
    says = (
        "Hifi does not store requests. It rebuilds them from the receipts and today's settings, so"
        " they differ if the settings have changed since. If the batch was split, or its events"
        " had different outcomes, webhook-id, hifi-events, hifi-attempt and hifi-try come from the"
        " receipt. The labels hifi-maybe-duplicate, hifi-replay and hifi-restored are not known."
    )
    return tag("p", says, class_="quiet")


# Headers that are sent unless the destination's settings name them.
_UNLESS_SET = (("user-agent", "hifi"), ("accept-encoding", "identity"))


def headers(sent: SentRequest, to: Destination) -> Iterator[tuple[str, str]]:
    """Yield the known headers of a request in the order of sending, with secrets masked."""
    yield "host", urlsplit(to.url).netloc.rpartition("@")[2]
    match to.auth:
        case Basic():
            yield "authorization", f"Basic {MASK}"
        case Bearer() | OAuth2():
            yield "authorization", f"Bearer {MASK}"
        case None if "@" in urlsplit(to.url).netloc:
            yield "authorization", f"Basic {MASK}"
    own = [*to.headers.items(), *((name, MASK) for name in to.secret_headers)]
    for name, value in own[:HEADERS_MAX]:
        yield name, MASK if _LIKE_A_SECRET.search(name) else value[:VALUE_CHARS_MAX]
    if len(own) > HEADERS_MAX:
        yield "...", f"{plural(len(own) - HEADERS_MAX, 'header')} more from the settings"
    yield "content-type", _BODIES[to.body_format][0]
    named = {name.lower() for name, _ in own}
    yield from ((name, value) for name, value in _UNLESS_SET if name not in named)
    yield "webhook-id", sent.batch_id
    yield "webhook-timestamp", str(sent.started_at_ms // 1000)
    yield "hifi-stream", to.stream
    yield "hifi-events", str(sent.event_count)
    yield "hifi-attempt", str(sent.attempt)
    if sent.try_number > 1:
        yield "hifi-try", str(sent.try_number)
    if to.compression != "none":
        yield "content-encoding", to.compression
    if to.signing_secrets:
        yield "webhook-signature", MASK


def shown_url(url: str) -> str:
    """Return the URL without user, password and the values of its query."""
    parts = urlsplit(url)
    names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    # A query without names may be a secret as a whole.
    masked = "&".join(f"{name}={MASK}" for name in names) if "=" in parts.query else MASK
    host = parts.netloc.rpartition("@")[2]
    shown = urlunsplit((parts.scheme, host, parts.path, masked if parts.query else "", ""))
    return shown if len(shown) <= _URL_CHARS_MAX else shown[:_URL_CHARS_MAX] + "\u2026"


def _body(sent: SentRequest, to: Destination) -> str:
    body = _BODIES[to.body_format][1].format(plural(sent.event_count, "event"))
    if sent.event_count > 1:
        body += ", including this one"
    if to.fields:
        body += ", only the members " + ", ".join(to.fields)[:VALUE_CHARS_MAX]
    return body if to.compression == "none" else f"{body}, compressed with {to.compression}"
