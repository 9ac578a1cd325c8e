"""The books page says what the sampler knows, and its JSON is read back as it was."""

from observe.books_page import BooksPage, BooksRow, books_page
from shared.proof.balance import Balance
from shared.proof.overview import AuditHealth, Overview, StreamVerdict, StreamView
from tests.support.console_fixtures import destination_view

AT_MS = 1_700_000_000_000


def test_each_destination_has_a_row_and_so_has_a_stream_without_one() -> None:
    view = destination_view("orders", "shop", at_ms=AT_MS)
    streams = (
        StreamView("alone", StreamVerdict.OK, "", 0.0, None, (), acked=7),
        StreamView("orders", StreamVerdict.OK, "", 0.0, None, (view,), acked=9),
    )
    page = books_page(Overview(AT_MS, streams, AuditHealth(), "trouble"), kafka="a:1,b:2")
    assert page == BooksPage(
        "a:1,b:2",
        AT_MS,
        "trouble",
        [
            BooksRow("alone", None, Balance(acked=7, pending=7)),
            BooksRow("orders", "shop", view.balance, StreamVerdict.OK, ""),
        ],
    )
    assert BooksPage.from_json(page.to_json()) == page
