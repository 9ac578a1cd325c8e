"""The books as a page of JSON on observe's metrics port, and how it is read."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from shared.proof.balance import Balance
from shared.proof.overview import Overview, RemovedView

BOOKS_PATH = "/books"


class BooksRow(Struct, frozen=True):
    """One line of the books; a stream that nobody wants has no destination."""

    stream: str
    destination: str | None
    balance: Balance
    # 0: it is there.
    removed_at_ms: int = 0


class BooksPage(Struct, frozen=True):
    """The books of every stream and destination at a moment."""

    # The Kafka they are of.
    kafka: str
    at_ms: int
    # Why they may be old or incomplete; empty if they are neither.
    problem: str
    rows: list[BooksRow]

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, text: bytes) -> "BooksPage":
        return msgspec.json.decode(text, type=cls)


def books_page(overview: Overview, *, kafka: str) -> BooksPage:
    """What the sampler last knew."""
    rows = []
    for stream in overview.streams:
        rows += [BooksRow(stream.name, to.name, to.balance) for to in stream.destinations]
        if not stream.destinations:
            rows.append(unwanted(stream.name, stream.acked, overview.removed))
    rows += map(removed_row, overview.removed)
    return BooksPage(kafka, overview.at_ms, overview.problem, rows)


def unwanted(stream: str, acked: int, removed: Iterable[RemovedView]) -> BooksRow:
    """The books of a stream without a destination: what none had come to is still to come."""
    had = max((gone.balance.acked for gone in removed if gone.stream == stream), default=0)
    rest = max(0, acked - had)
    return BooksRow(stream, None, Balance(acked=rest, pending=rest))


def removed_row(gone: RemovedView) -> BooksRow:
    return BooksRow(gone.stream, gone.name, gone.balance, gone.removed_at_ms)
