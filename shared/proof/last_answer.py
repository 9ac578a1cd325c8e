"""What a destination said last when it did not take what it was sent, made fit to be shown.

Whoever runs a destination chooses the text, so it is bounded and holds nothing that could move a
terminal's cursor or turn a line around. Whoever shows it still escapes it for where it stands.
"""

from msgspec import Struct

# An error page says what is wrong in its first lines; a record of each destination stays small.
ANSWER_BYTES_MAX = 1_024


class LastAnswer(Struct, frozen=True):
    """What came of the last request that was not taken."""

    at_ms: int
    # `status_503`, `connect_refused`: one of few words.
    reason: str
    # Of the answer's body, or what the network said.
    text: str = ""


def shown_text(text: str) -> str:
    """One line of printable characters: no escape sequence, no character that turns a line."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(printable.split())[:ANSWER_BYTES_MAX]
