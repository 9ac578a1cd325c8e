"""Records that transactions leave in a log besides events do not count as lost."""

import asyncio

import pytest

from shared.config.destination import Destination
from shared.event.envelope import event_headers
from shared.event.topics import stream_topic
from shared.runtime.kafka.only_writer import Row, only_writer
from tests.support.deploy.stack_fixtures import RunningHifi
from tests.support.servers.scripted_destination import scripted_destination

pytestmark = pytest.mark.integration

STREAM = "in-transactions"


def test_markers_of_transactions_and_what_they_took_back_are_not_unaccounted(
    hifi: RunningHifi,
) -> None:
    with scripted_destination() as destination:
        to = Destination(STREAM, "to", destination.url)
        hifi.add(to, partition_count=1)
        asyncio.run(_write(hifi.kafka))
        books = hifi.wait_for_balance(
            to.id,
            # Six events, two that were rolled back, and four markers.
            lambda it: it.acked == 12 and it.acked == it.delivered,
            what="each record is delivered, or is not an event",
        )
        came = [event["id"] for request in destination.accepted for event in request.events]
    assert (books.queued, books.unaccounted) == (0, 0)
    assert came == [f"e{n}" for n in range(6)]


async def _write(servers: str) -> None:
    for number in range(3):
        async with only_writer(servers, STREAM) as write:
            await write([_row(f"e{2 * number}"), _row(f"e{2 * number + 1}")])
            if number == 1:
                with pytest.raises(TypeError):
                    await write([_row("no"), _row("nor this"), _row(object())])


def _row(name: object) -> Row:
    headers = event_headers(event_id="e", event_time_ms=1, accepted_at_ms=1)
    value = b'{"id":"%s"}' % name.encode() if isinstance(name, str) else name
    return stream_topic(STREAM), None, value, headers  # type: ignore[return-value]
