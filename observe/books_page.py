"""The books as a JSON page on observe's metrics port, with its writer and its reader."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from shared.event.topics import pipeline_lane, stream_and_name
from shared.proof.balance import Balance
from shared.proof.overview import Overview, PipelineView, RemovedView, StreamVerdict
from shared.proof.restored import RestoredView

BOOKS_PATH = "/books"


class BooksRow(Struct, frozen=True):
    """One line of the books; a stream without readers has no destination."""

    stream: str
    destination: str | None
    balance: Balance
    # None if there is no verdict.
    verdict: StreamVerdict | None = None
    reason: str = ""
    # 0 if the stream or destination still exists.
    removed_at_ms: int = 0
    # Windows or keys that a pipeline keeps, and their bytes; None if it keeps no state.
    kept: int | None = None
    kept_bytes: int = 0


class BooksPage(Struct, frozen=True):
    """The books of every stream and destination at a moment."""

    # The bootstrap servers of the Kafka that they describe.
    kafka: str
    at_ms: int
    # Why they may be old or incomplete; otherwise empty.
    problem: str
    rows: list[BooksRow]
    # The audit's own trouble; empty if all is well, or if there is no audit.
    audit: str = ""
    # By stream: its restored events, which its rows also count.
    restored: dict[str, RestoredView] = {}

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, text: bytes) -> "BooksPage":
        return msgspec.json.decode(text, type=cls)


def books_page(overview: Overview, *, kafka: str) -> BooksPage:
    """Return the books in an overview."""
    rows = []
    for stream in overview.streams:
        rows += [
            BooksRow(stream.name, to.name, to.balance, to.verdict, to.reason)
            for to in stream.destinations
        ]
        through = [pipeline_row(view) for view in overview.pipelines if view.stream == stream.name]
        rows += through
        if not (stream.destinations or through):
            rows.append(unwanted(stream.name, stream.acked, overview.removed))
    rows += map(removed_row, overview.removed)
    restored = {
        stream.name: stream.restored for stream in overview.streams if stream.restored.count
    }
    audit = overview.audit.problem
    return BooksPage(kafka, overview.at_ms, overview.problem, rows, audit, restored)


def unwanted(stream: str, acked: int, removed: Iterable[RemovedView]) -> BooksRow:
    """Return the books of a stream without a destination: events that none has read are queued."""
    had = max((gone.balance.acked for gone in removed if gone.stream == stream), default=0)
    rest = max(0, acked - had)
    return BooksRow(stream, None, Balance(acked=rest, queued=rest))


def pipeline_row(view: PipelineView) -> BooksRow:
    _, name = stream_and_name(pipeline_lane(view.stream, view.name))
    if view.lane is None:
        return BooksRow(view.stream, name, view.balance)
    return BooksRow(
        *(view.stream, name, view.balance, view.lane.verdict, view.lane.reason),
        kept=view.kept,
        kept_bytes=view.kept_bytes,
    )


def removed_row(gone: RemovedView) -> BooksRow:
    return BooksRow(gone.stream, gone.name, gone.balance, removed_at_ms=gone.removed_at_ms)
