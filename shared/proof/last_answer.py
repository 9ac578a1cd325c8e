"""The last answer of a destination that did not take a request, made safe to show.

The people who run a destination choose the text, so it is bounded and has no characters that could
move a terminal's cursor or reverse a line. Pages that show it must still escape it.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from shared.event.times import HOUR_MS

# The counts of events that were given up go back 7 days.
DEAD_STEP_MS, DEAD_STEPS = 6 * HOUR_MS, 28
# An error page describes the error in its first lines; the record of a destination stays small.
ANSWER_BYTES_MAX = 1_024
# The maximum number of characters of an answer on a page or in a line.
SHOWN_CHARS_MAX = 200
# Headers that show who has answered, and what to do about it. None of them may have a secret.
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
# The bytes of a try in a receipt besides its text and headers.
_FACTS_BYTES = 110
# The quotes, colon and comma of a header.
_HEADER_BYTES = 6
# Events are grouped by this much of an answer, with each number or id in it left out.
_GIST_CHARS_MAX = 120
_WORD = re.compile(r"""[^\s"'(),:;<=>\[\]{}]+""")
_LEFT_OUT = "#"
# Marks the end of a text that was cut.
CUT = "\u2026"


class LastAnswer(Struct, frozen=True):
    """The result of the last request that was not taken."""

    at_ms: int
    # One of a few words, such as `status_503` or `connect_refused`.
    reason: str
    # From the answer's body, or the network's error.
    text: str = ""


class FailedTry(Struct, frozen=True, omit_defaults=True):
    """The result of one request that was not taken, for the receipt of its batch."""

    # When it ended, and how long it took.
    at_ms: int
    reason: str
    took_ms: int = 0
    # 0: no answer came.
    status: int = 0
    text: str = ""
    headers: dict[str, str] = {}

    def within(self, bytes_max: int) -> "FailedTry":
        """The same try with no more than this many bytes of text and headers."""
        headers: dict[str, str] = {}
        used = 0
        for name, value in self.headers.items():
            taken = len(name) + _written_bytes(value) + _HEADER_BYTES
            if used + taken <= bytes_max // _HEADERS_PART:
                headers[name] = value
                used += taken
        return replace(self, headers=headers, text=_cut(self.text, bytes_max - used))


class DeadGroup(Struct, frozen=True):
    """Events for a destination that were given up for one reason, with one answer."""

    # Empty for all events that were too different to be groups of their own.
    reason: str
    # As `answer_of` returns it.
    answer: str
    # How many are in dead letters now.
    count: int
    # When the first and the last of them were given up.
    first_ms: int
    last_ms: int
    # How many were given up in each step of DEAD_STEP_MS, by its start, of the newest DEAD_STEPS.
    given_up: Mapping[int, int]


def answer_of(reason: str, cause: str, text: str) -> str:
    """Return the answer to events that were given up, in the form by which they are grouped.

    `cause` is the result of the last request; the answer names it unless it equals the reason.
    Words with a digit are left out: a number, an id, a time. If a text was cut, the answer is its
    beginning, and a * stands for the rest.
    """
    was_cut = text.endswith(CUT)
    shown = shown_text(text.removesuffix(CUT))
    was_cut = was_cut and len(shown) < _GIST_CHARS_MAX
    gist = _WORD.sub(_plain, shown[:_GIST_CHARS_MAX]) + ("*" if was_cut else "")
    prefix = "" if cause == reason else cause.removeprefix("status_").replace("_", " ")
    return " ".join(filter(None, (prefix, gist)))


def is_answer(one: str, other: str) -> bool:
    """Whether two answers are the same, as far as each is known, which is up to its *."""
    if one.endswith("*") and other.startswith(one[:-1]):
        return True
    return one.startswith(other[:-1]) if other.endswith("*") else one == other


def _plain(word: re.Match[str]) -> str:
    return _LEFT_OUT if any(map(str.isdigit, word[0])) else word[0]


def share_room(tries: Sequence[FailedTry], *, receipt_count: int = 1) -> tuple[FailedTry, ...]:
    """Return the tries for each of a batch's receipts, which share the room of one answer.

    A batch whose first event keeps its place in the stream has no receipts.
    """
    if not (tries and receipt_count):
        return ()
    share = ANSWER_BYTES_MAX // (len(tries) * receipt_count)
    return tuple(each.within(max(share - _FACTS_BYTES, 0)) for each in tries)


def told_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of an answer that are kept; a `location` loses its query."""
    kept = {name: shown_text(headers[name]) for name in TOLD_HEADERS if name in headers}
    if "location" in kept:
        kept["location"] = kept["location"].partition("?")[0]
    return kept


def shown_text(text: str) -> str:
    """Return one line of printable characters: no escape sequences, none that reverse a line."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(printable.split())[:ANSWER_BYTES_MAX]


def _written_bytes(text: str) -> int:
    """The bytes of printable text in JSON, without its quotes."""
    return len(text.encode()) + text.count('"') + text.count("\\")


def _cut(text: str, bytes_max: int) -> str:
    if _written_bytes(text) <= bytes_max:
        return text
    room = max(bytes_max - len(CUT.encode()), 0)
    kept = text.encode()[:room].decode(errors="ignore")
    escapes = _written_bytes(kept) - len(kept.encode())
    return kept.encode()[: max(room - escapes, 0)].decode(errors="ignore") + CUT
