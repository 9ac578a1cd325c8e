"""The books page shows the sampler's figures, and its JSON is read back unchanged."""

from dataclasses import replace

from observe.books_page import BooksPage, BooksRow, books_page
from shared.proof.balance import Balance
from shared.proof.overview import (
    AuditHealth,
    Overview,
    PipelineView,
    RemovedView,
    StreamVerdict,
    StreamView,
)
from shared.proof.restored import RestoredView
from tests.support.console.console_fixtures import destination_view

AT_MS = 1_700_000_000_000
SPRING = RestoredView(4, "spring", AT_MS)


def test_what_was_removed_keeps_its_books_and_is_on_its_way_no_more() -> None:
    """A destination had reached 7 of 9 events and was removed; the other two belong to nobody."""
    had = Balance(acked=9, delivered=5, waiting=1, dead=1, queued=2).come_to
    assert had == Balance(acked=7, delivered=5, waiting=1, dead=1)
    removed = (
        RemovedView("alone", "crm", 17, had),
        RemovedView("alone", "late", 18, Balance(acked=3, delivered=3)),
        RemovedView("gone", "shop", 19, Balance(acked=4, delivered=4)),
        RemovedView("gone", "crm", 20, Balance(acked=5, delivered=5)),
    )
    alone = StreamView("alone", StreamVerdict.OK, "", 0.0, None, (), acked=9)
    overview = Overview(AT_MS, (alone,), AuditHealth(), removed=removed)
    assert books_page(overview, kafka="a:1").rows == [
        BooksRow("alone", None, Balance(acked=2, queued=2)),
        BooksRow("alone", "crm", had, removed_at_ms=17),
        BooksRow("alone", "late", Balance(acked=3, delivered=3), removed_at_ms=18),
        BooksRow("gone", "shop", Balance(acked=4, delivered=4), removed_at_ms=19),
        BooksRow("gone", "crm", Balance(acked=5, delivered=5), removed_at_ms=20),
    ]
    # An event counts once, however many destinations its stream had.
    assert overview.removed_acked == 5
    assert replace(overview, streams=()).removed_acked == 12


def test_what_a_pipeline_keeps_is_in_its_row() -> None:
    stream = StreamView("orders", StreamVerdict.OK, "", 0.0, None, (), acked=9)
    lane = destination_view("orders", "pipeline:visits", at_ms=AT_MS)
    view = PipelineView("orders", "visits", Balance(acked=9), lane, kept=12, kept_bytes=4_096)
    page = books_page(Overview(AT_MS, (stream,), AuditHealth(), pipelines=(view,)), kafka="a:1")
    (row,) = page.rows
    assert (row.destination, row.kept, row.kept_bytes) == ("pipeline:visits", 12, 4_096)
    assert BooksPage.from_json(page.to_json()) == page


def test_each_destination_has_a_row_and_so_has_a_stream_without_one() -> None:
    view = destination_view("orders", "shop", at_ms=AT_MS)
    streams = (
        StreamView("alone", StreamVerdict.OK, "", 0.0, None, (), acked=7),
        StreamView("orders", StreamVerdict.OK, "", 0.0, None, (view,), acked=9, restored=SPRING),
    )
    page = books_page(Overview(AT_MS, streams, AuditHealth(), "trouble"), kafka="a:1,b:2")
    assert page == BooksPage(
        "a:1,b:2",
        AT_MS,
        "trouble",
        [
            BooksRow("alone", None, Balance(acked=7, queued=7)),
            BooksRow("orders", "shop", view.balance, StreamVerdict.OK, ""),
        ],
        "the audit has not finished its first run",
        {"orders": SPRING},
    )
    assert BooksPage.from_json(page.to_json()) == page
