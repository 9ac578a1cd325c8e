"""Gets the books for `hifi status` and `hifi up`: from observe, or by counting in Kafka."""

import asyncio

from deploy.local.services import answer_of
from observe.books_page import (
    BOOKS_PATH,
    BooksPage,
    BooksRow,
    pipeline_row,
    removed_row,
    unwanted,
)
from observe.lag.live_books import open_books
from shared.config.configuration import Configuration
from shared.event.topics import CONFIG, RECEIPTS
from shared.proof.restored import RestoredView
from shared.runtime.clock import now_ms
from shared.runtime.defaults import HOST
from shared.runtime.kafka.config_topic import read_config
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.setup_error import SetupError

# The sampler makes new books every second, but less often when it has much to read.
_AGE_MS_MAX = 5_000


class NoBooksError(Exception):
    """Observe has no books that can be relied on; the text says why."""


def observed_books(kafka: str, *, port: int) -> BooksPage:
    """Return the counts that observe on this machine already has."""
    try:
        page = BooksPage.from_json(answer_of(f"http://{HOST}:{port}{BOOKS_PATH}"))
    except ValueError as error:
        raise NoBooksError(f"observe does not answer at {HOST}:{port}") from error
    if not set(page.kafka.split(",")) & set(kafka.split(",")):
        raise NoBooksError(f"observe on this machine reads another Kafka, {page.kafka}")
    if page.problem:
        raise NoBooksError(f"observe cannot tell: {page.problem}")
    age_ms = now_ms() - page.at_ms
    if age_ms > _AGE_MS_MAX:
        raise NoBooksError(f"observe's books are {age_ms / 1000:,.0f} s old")
    return page


def read(kafka: str, observe_metrics_port: int) -> tuple[BooksPage, str]:
    """Return the books, and why observe's could not be used; empty if these are observe's."""
    return asyncio.run(_read(kafka, observe_metrics_port))


async def _read(kafka: str, observe_metrics_port: int) -> tuple[BooksPage, str]:
    async with topic_admin(kafka) as admin:
        if not {CONFIG, RECEIPTS} <= await admin.names():
            raise SetupError(
                f"The Kafka at {kafka} has none of Hifi's topics: start `hifi up`,"
                " or name another Kafka with --kafka HOST:PORT."
            )
    try:
        return observed_books(kafka, port=observe_metrics_port), ""
    except NoBooksError as why:
        return await counted_books(kafka, await read_config(kafka)), str(why)


async def counted_books(kafka: str, configuration: Configuration) -> BooksPage:
    """Count the books from every receipt in Kafka: some 10 s for a million receipts."""
    streams = sorted(configuration.streams)
    rows = []
    async with open_books(kafka, lambda: configuration) as books:
        gone = configuration.removed_now
        await books.refresh(
            sorted(configuration.past_streams),
            [
                *configuration.destinations,
                *(pipeline.lane_id for pipeline in configuration.pipelines.values()),
                *(each.id for each in gone),
            ],
        )
        through = [pipeline_row(view) for view in books.of_pipelines(configuration)]
        removed = [books.left_of(each) for each in gone]
        for stream in streams:
            ours = sorted(configuration.destinations_of(stream), key=lambda ours: ours.name)
            rows += [BooksRow(stream, to.name, books.balance(to.id)) for to in ours]
            own = [row for row in through if row.stream == stream]
            rows += own
            if not (ours or own):
                rows.append(unwanted(stream, books.acked_count(stream), removed))
        rows += map(removed_row, removed)
        put_back = {stream: RestoredView.of(books.restores.into(stream)) for stream in streams}
    restored = {stream: view for stream, view in put_back.items() if view.count}
    return BooksPage(kafka, now_ms(), "", rows, restored=restored)
