"""A machine that sends to a destination endlessly: a worker with its flow folder, and a driver.

Everything except Spark and the lane is delivery's own code: the events are made up. It runs as a
process of its own: `python -m tests.support.delivery.flow_machine` with a `MachineOrder` as JSON.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread

from delivery.flow_news import NewsRound
from delivery.flow_store import FlowStore
from delivery.lanes.outlet import Outlet
from delivery.sending import Plan, Sending, worker_of
from shared.config.destination import Destination
from shared.event.envelope import event_headers
from shared.event.record import Origin, RecordIn
from shared.event.topics import STATE, stream_topic
from shared.retry.routing import route_state
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.state_topic import StateFeed
from tests.support.delivery.fetched_rows import fetched

_REPO = Path(__file__).parents[3]
# As many as a span may have in a time box; unsent ones are parked, and forgotten here.
_EVENTS = 200
_TIME_BOX_S = 3.0
_NEWS_S = 0.1


@dataclass(frozen=True)
class MachineOrder:
    kafka: str
    folder: str
    # The machine's events are named after it.
    name: str
    destination: dict[str, object]


@contextmanager
def machines(
    kafka: str, folder: Path, to: Mapping[str, object], names: Sequence[str]
) -> Iterator[None]:
    """Run a machine for each name; kill them at the end."""
    orders = [MachineOrder(kafka, str(folder / name), name, dict(to)) for name in names]
    command = [sys.executable, "-m", "tests.support.delivery.flow_machine"]
    children = [
        subprocess.Popen([*command, json.dumps(asdict(each))], cwd=_REPO) for each in orders
    ]
    try:
        yield
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()


def _rows(to: Destination, name: str, first: int) -> list[RecordIn]:
    topic, at_ms = stream_topic(to.stream), now_ms()
    return [
        RecordIn(
            Origin(topic, 0, offset),
            at_ms,
            None,
            json.dumps({"id": f"{name}-{offset}"}).encode(),
            event_headers(event_id=f"{offset}", event_time_ms=at_ms, accepted_at_ms=at_ms),
        )
        for offset in range(first, first + _EVENTS)
    ]


def _send(order: MachineOrder, to: Destination, states: StateFeed) -> None:
    """Send like the tasks of a worker, one after the other."""
    worker, outlet, first = worker_of(allows_private=True), Outlet(order.kafka), 0
    while True:
        plan = Plan(
            "stream",
            {to.id: to},
            Path(order.folder),
            time_box_s=_TIME_BOX_S,
            allows_private=True,
            flows=dict(states.flows),
        )

        async def settle(plan: Plan = plan, first: int = first) -> None:
            sending = Sending(plan, worker, tell=outlet.store)
            outcomes = await sending.settle(fetched(_rows(to, order.name, first)))
            await outlet.store([row for row in outcomes if row.topic == STATE])
            sending.leave()

        worker.loop.run_until_complete(settle())
        first += _EVENTS


async def _drive(order: MachineOrder, to: Destination) -> None:
    states, outlet = StateFeed(order.kafka), Outlet(order.kafka)
    await states.start()
    news = NewsRound(FlowStore(Path(order.folder)), RetrySchedule())
    Thread(target=_send, args=(order, to, states), daemon=True).start()
    while True:
        told = news.go(states.flows, {to.id: to})
        await outlet.store([route_state(name, each.to_json()) for name, each in told])
        await asyncio.sleep(_NEWS_S)


if __name__ == "__main__":
    told = MachineOrder(**json.loads(sys.argv[1]))
    asyncio.run(_drive(told, Destination(**told.destination)))  # type: ignore[arg-type]
