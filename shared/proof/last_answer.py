"""The last answer of a destination that did not take what it was sent, made fit to be shown.

The people who run a destination choose the text, so it is bounded and holds nothing that could move
a terminal's cursor or turn a line around. Pages that show it still escape it for where it stands.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from shared.event.times import HOUR_MS

# The counts of events that were given up go back 7 days.
DEAD_STEP_MS, DEAD_STEPS = 6 * HOUR_MS, 28
# An error page says what is wrong in its first lines; a record of each destination stays small.
ANSWER_BYTES_MAX = 1_024
# The most characters of an answer on a page or in a line.
SHOWN_CHARS_MAX = 200
# Headers that tell who has answered, and what to do about it. None of them may hold a secret.
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
# The bytes of a try in a receipt beside its text and headers.
_FACTS_BYTES = 110
# The quotes, colon and comma of one.
_HEADER_BYTES = 6
# Events are grouped by this much of an answer, with each number or id in it left out.
_GIST_CHARS_MAX = 120
_WORD = re.compile(r"""[^\s"'(),:;<=>\[\]{}]+""")
_LEFT_OUT = "#"
# Stands at the end of a longer text.
CUT = "\u2026"


class LastAnswer(Struct, frozen=True):
    """The result of the last request that was not taken."""

    at_ms: int
    # `status_503`, `connect_refused`: one of few words.
    reason: str
    # From the answer's body, or what the network said.
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
        """The same with no more than this many bytes of text and headers."""
        headers: dict[str, str] = {}
        used = 0
        for name, value in self.headers.items():
            taken = len(name) + _written_bytes(value) + _HEADER_BYTES
            if used + taken <= bytes_max // _HEADERS_PART:
                headers[name] = value
                used += taken
        return replace(self, headers=headers, text=_cut(self.text, bytes_max - used))


class DeadGroup(Struct, frozen=True):
    """Events that a destination has given up for one reason, with one answer."""

    # Empty for all that were too different to be groups of their own.
    reason: str
    # As `answer_of` tells it.
    answer: str
    # How many rest in dead letters now.
    count: int
    # When the first and the last of them were given up.
    first_ms: int
    last_ms: int
    # How many were given up in each step of DEAD_STEP_MS, by its start, of the newest DEAD_STEPS.
    given_up: Mapping[int, int]


def answer_of(reason: str, cause: str, text: str) -> str:
    """The answer to events that were given up, by which they are grouped.

    `cause` is the result of the last request; the answer names it unless it is the reason itself.
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
    """Whether two answers are the same, as far as each is known: to its *."""
    if one.endswith("*") and other.startswith(one[:-1]):
        return True
    return one.startswith(other[:-1]) if other.endswith("*") else one == other


def _plain(word: re.Match[str]) -> str:
    return _LEFT_OUT if any(map(str.isdigit, word[0])) else word[0]


def share_room(tries: Sequence[FailedTry], *, receipt_count: int = 1) -> tuple[FailedTry, ...]:
    """The tries as each of a batch's receipts tells them: together they have room for one answer.

    A batch whose first event keeps its place in the line has none.
    """
    if not (tries and receipt_count):
        return ()
    share = ANSWER_BYTES_MAX // (len(tries) * receipt_count)
    return tuple(each.within(max(share - _FACTS_BYTES, 0)) for each in tries)


def told_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of an answer that are kept. A `location` loses its query."""
    kept = {name: shown_text(headers[name]) for name in TOLD_HEADERS if name in headers}
    if "location" in kept:
        kept["location"] = kept["location"].partition("?")[0]
    return kept


def shown_text(text: str) -> str:
    """One line of printable characters: no escape sequence, no character that turns a line."""
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
