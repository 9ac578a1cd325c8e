"""Events reach a destination behind a proxy that is killed again and again: none is lost.

The usual run kills Squid twice; `make test-long ARGS="-k proxy_kills"` kills it twenty times.
"""

import re
from collections.abc import Callable

import pytest

from shared.config.credentials import Proxy
from shared.config.destination import Destination
from shared.metric_names import DELIVERY_EVENTS_PARKED
from tests.support.deploy.stack_fixtures import PATIENCE_S, RunningHifi, fetch, wait_until
from tests.support.servers.authority import Authority
from tests.support.servers.scripted_destination import Reply, scripted_destination
from tests.support.servers.squid import running_squid

pytestmark = pytest.mark.integration

PARKED = DELIVERY_EVENTS_PARKED.name
EVENTS = 10_000
BATCH = 50


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.long)])
def test_no_event_is_lost_with_its_proxy(hifi: RunningHifi, trusted: Authority, kills: int) -> None:
    stream, round_size = f"behind-a-proxy-{kills}", EVENTS // kills
    metrics = f"http://127.0.0.1:{hifi.stack.settings.delivery_metrics_port}/metrics"
    with (
        running_squid() as squid,
        # Slow enough that each kill meets requests that are under way.
        scripted_destination(
            lambda _, __: Reply(delay_s=0.1), certificate=trusted.sign("destination")
        ) as destination,
    ):
        to = Destination(
            stream=stream,
            name="to",
            url=destination.url,
            proxy=Proxy(squid.url),
            batch_count_max=BATCH,
        )
        hifi.add(to)

        def parked() -> float:
            line = rf'{PARKED}{{cause="proxy_failed",destination="{to.id}"}} (\S+)'
            found = re.search(line, fetch(metrics))
            return float(found[1]) if found else 0.0

        def has_grown(count: Callable[[], float]) -> Callable[[], bool]:
            before = count()
            return lambda: count() > before

        for number in range(kills):
            events = [{"id": f"r{number}-{n}"} for n in range(round_size)]
            assert hifi.post(stream, events).status_code == 200
            is_sending = has_grown(lambda: len(destination.requests))
            assert destination.wait_for(is_sending, timeout_s=PATIENCE_S)
            misses = has_grown(parked)
            squid.kill()
            wait_until(misses, what="events wait for their proxy")
            squid.start()
        books = hifi.wait_for_balance(
            to.id,
            lambda b: b.acked == EVENTS and b.queued == b.waiting == 0,
            what="all events are settled",
            timeout_s=3 * PATIENCE_S,
        )
        assert (books.unaccounted, books.dead) == (0, 0)
        assert len(destination.accepted_ids) == EVENTS
        seen: set[str] = set()
        for request in destination.accepted:
            ids = {event["id"] for event in request.events}
            is_plain = "hifi-maybe-duplicate" not in request.headers
            assert not (is_plain and ids & seen), "a second copy has no label"
            seen |= ids
