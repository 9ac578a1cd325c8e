"""What a destination said last when it did not take what it was sent, made fit to be shown.

Whoever runs a destination chooses the text, so it is bounded and holds nothing that could move a
terminal's cursor or turn a line around. Whoever shows it still escapes it for where it stands.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

# An error page says what is wrong in its first lines; a record of each destination stays small.
ANSWER_BYTES_MAX = 1_024
# Of an answer on a page or in a line.
SHOWN_CHARS_MAX = 200
# What tells who has answered, and what to do about it. Nothing that may hold a secret.
TOLD_HEADERS = (
    "content-type",
    "retry-after",
    "location",
    "www-authenticate",
    "server",
    "via",
    "x-request-id",
)
# Headers have a quarter of the room.
_HEADERS_PART = 4
# What a try takes in a receipt beside its text and headers.
_FACTS_BYTES = 110
# The quotes, colon and comma of one.
_HEADER_BYTES = 6


class LastAnswer(Struct, frozen=True):
    """What came of the last request that was not taken."""

    at_ms: int
    # `status_503`, `connect_refused`: one of few words.
    reason: str
    # Of the answer's body, or what the network said.
    text: str = ""


class FailedTry(Struct, frozen=True, omit_defaults=True):
    """What came of one request that was not taken, for the receipt of its batch."""

    # When it ended, and how long it took.
    at_ms: int
    reason: str
    took_ms: int = 0
    # 0: no answer came.
    status: int = 0
    text: str = ""
    headers: dict[str, str] = {}

    def within(self, bytes_max: int) -> "FailedTry":
        """The same with no more text and headers than so many bytes."""
        headers: dict[str, str] = {}
        used = 0
        for name, value in self.headers.items():
            taken = len(name) + _written_bytes(value) + _HEADER_BYTES
            if used + taken <= bytes_max // _HEADERS_PART:
                headers[name] = value
                used += taken
        return replace(self, headers=headers, text=_cut(self.text, bytes_max - used))


def share_room(tries: Sequence[FailedTry], *, receipt_count: int = 1) -> tuple[FailedTry, ...]:
    """What each of so many receipts of a batch tells of its tries: all have room for one answer.

    A batch whose first event keeps its place in the line has none.
    """
    if not (tries and receipt_count):
        return ()
    share = ANSWER_BYTES_MAX // (len(tries) * receipt_count)
    return tuple(each.within(max(share - _FACTS_BYTES, 0)) for each in tries)


def told_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Those of an answer that are kept. Where it leads to is told without its query."""
    told = {name: shown_text(headers[name]) for name in TOLD_HEADERS if name in headers}
    if "location" in told:
        told["location"] = told["location"].partition("?")[0]
    return told


def shown_text(text: str) -> str:
    """One line of printable characters: no escape sequence, no character that turns a line."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(printable.split())[:ANSWER_BYTES_MAX]


def _written_bytes(text: str) -> int:
    """What printable text takes in JSON, without its quotes."""
    return len(text.encode()) + text.count('"') + text.count("\\")


def _cut(text: str, bytes_max: int) -> str:
    if _written_bytes(text) <= bytes_max:
        return text
    kept = text.encode()[:bytes_max].decode(errors="ignore")
    escapes = _written_bytes(kept) - len(kept.encode())
    return kept.encode()[: bytes_max - escapes].decode(errors="ignore") if escapes else kept
