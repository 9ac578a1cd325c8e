"""What the gateway's tests stand on: a publisher in memory, and a real server on a free port."""

import asyncio
import contextlib
import threading
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import httpx
import uvicorn

from gateway.app import create_app
from gateway.events import Event
from gateway.ledger import AckLedger
from gateway.problems import Problem
from gateway.publisher import Publisher
from gateway.report import Fate, Report
from gateway.server import api_config
from gateway.settings import Settings
from gateway.spool import Spool
from shared.configuration import Configuration, Stream
from shared.dead_letter import Letter, Place, Wanted, open_letter
from shared.decision import DeadLetter
from shared.envelope import Envelope, History
from shared.record import Origin, RecordIn
from shared.routing import route
from shared.runtime.dead_letters import Page, Redriven
from shared.runtime.metrics import Metrics
from shared.runtime.setup_error import SetupError
from shared.topics import DEAD, stream_topic

PARTITION_COUNT = 4


class FakePublisher:
    """Kafka in memory. `fates` and `fate` decide what becomes of events; `held` makes them wait."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.logs: dict[str, list[list[Event]]] = {
            topic: [[] for _ in range(PARTITION_COUNT)] for topic in topics
        }
        self.fate = Fate.STORED
        self.fates: dict[str, Fate] = {}
        self.problem: str | None = None
        self.overdue_bytes = 0
        self.published = threading.Event()
        self._released = threading.Event()
        self._released.set()
        self._turn = 0

    def hold(self) -> None:
        """From now on a publish waits for `release`."""
        self.published.clear()
        self._released.clear()

    def release(self) -> None:
        self._released.set()

    def stored(self, topic: str) -> list[Event]:
        return [event for log in self.logs[topic] for event in log]

    async def publish(self, topic: str, events: Sequence[Event]) -> Sequence[Report]:
        self.published.set()
        if not self._released.is_set():
            await asyncio.to_thread(self._released.wait, 10)
        if topic not in self.logs:
            return [Report(Fate.NOT_STORED, range(len(events)), reason="no such topic")]
        self._turn += 1
        reports = []
        for (fate, partition), positions in self._sort(events).items():
            if fate is not Fate.STORED:
                reports.append(Report(fate, positions, reason=f"{fate.value} by the test"))
                continue
            log = self.logs[topic][partition]
            reports.append(Report(fate, positions, partition, len(log)))
            log.extend(events[position] for position in positions)
        return reports

    def _sort(self, events: Sequence[Event]) -> dict[tuple[Fate, int], list[int]]:
        found: dict[tuple[Fate, int], list[int]] = defaultdict(list)
        for position, event in enumerate(events):
            hashed = self._turn if event.key is None else zlib.crc32(event.key)
            fate = self.fates.get(event.id, self.fate)
            found[fate, hashed % PARTITION_COUNT].append(position)
        return found


@dataclass
class FixedConfig:
    configuration: Configuration = field(default_factory=Configuration)
    problem: str | None = None
    age_s: float = 0.0


@dataclass
class FakeStore:
    """A config topic in memory that everybody follows at once."""

    config: FixedConfig
    publisher: Publisher
    problem: Problem | None = None
    topics: dict[str, int] = field(default_factory=dict)

    async def write(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        if self.problem is not None:
            raise self.problem
        for key, value in records:
            self.config.configuration = self.config.configuration.apply(key, value)

    async def make_topic(self, stream: Stream) -> None:
        if self.problem is not None:
            raise self.problem
        if self.topics.get(stream.name, 0) > stream.partition_count:
            raise Problem("bad_object", "there are more partitions")
        self.topics[stream.name] = stream.partition_count
        if isinstance(self.publisher, FakePublisher):
            log: list[list[Event]] = [[] for _ in range(PARTITION_COUNT)]
            self.publisher.logs.setdefault(stream_topic(stream.name), log)


def a_dead_letter(offset: int, *, reason: str = "status_400") -> Letter:
    """A dead letter of the stream orders."""
    envelope = Envelope(
        origin=Origin(stream_topic("orders"), 0, offset),
        value=b'{"id": "e%d"}' % offset,
        key=None,
        stream="orders",
        event_id=f"e{offset}",
        event_time_ms=offset,
        accepted_at_ms=offset,
    )
    dead = DeadLetter(reason, History.fresh(now_ms=0, deadline_s=1))
    row = route(dead, envelope, "orders/shop", now_ms=0)
    return open_letter(RecordIn(Origin(DEAD, 0, offset), offset, row.key, row.value, row.headers))


@dataclass
class FakeDeadLetters:
    """Dead letters in memory."""

    letters: list[Letter] = field(default_factory=list)
    marked: set[Place] = field(default_factory=set)
    error: SetupError | None = None

    async def page(
        self, wanted: Wanted, *, after: Place | None, count_max: int
    ) -> tuple[Page, set[Place]]:
        found = [one for one in self._wanted(wanted) if after is None or one.place >= after]
        page, more = found[:count_max], found[count_max:]
        return Page(tuple(page), more[0].place if more else None), self.marked

    async def count(self, wanted: Wanted, *, count_max: int | None) -> Redriven:
        new = [one.place for one in self._wanted(wanted) if one.place not in self.marked]
        already = len(self._wanted(wanted)) - len(new)
        return Redriven(count=len(new[:count_max]), already=already)

    async def redrive(
        self, wanted: Wanted, *, redrive_id: str, rate_per_s: float, count_max: int | None
    ) -> Redriven:
        assert redrive_id
        assert rate_per_s > 0
        found = await self.count(wanted, count_max=count_max)
        new = [one.place for one in self._wanted(wanted) if one.place not in self.marked]
        self.marked |= set(new[:count_max])
        return found

    def _wanted(self, wanted: Wanted) -> list[Letter]:
        if self.error is not None:
            raise self.error
        return [one for one in self.letters if wanted.takes(one)]


def config_with(*streams: str) -> FixedConfig:
    return FixedConfig(Configuration(streams={name: Stream(name) for name in streams}))


@dataclass
class RunningGateway:
    """A gateway that answers real HTTP on a port."""

    url: str
    port: int
    metrics: Metrics
    client: httpx.Client
    store: FakeStore

    def sample(self, name: str, **labels: str) -> float:
        """A metric's value; 0 while nothing was counted."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@contextlib.contextmanager
def running_gateway(
    publisher: Publisher,
    config: FixedConfig,
    settings: Settings | None = None,
    *,
    spool: Spool | None = None,
    ledger: AckLedger | None = None,
    dead_letters: FakeDeadLetters | None = None,
) -> Iterator[RunningGateway]:
    """Serve the application with uvicorn in a thread, as the real process does."""
    metrics = Metrics()
    settings = settings or Settings()
    store = FakeStore(config, publisher)
    app = create_app(
        settings,
        publisher=publisher,
        config=config,
        store=store,
        metrics=metrics,
        dead_letters=dead_letters or FakeDeadLetters(),
        spool=spool,
        ledger=ledger,
    )
    serving = api_config(app, settings)
    serving.port, serving.loop = 0, "uvloop"
    server = uvicorn.Server(serving)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = threading.Event()
        while not server.started:
            assert thread.is_alive(), "the server ended instead of starting"
            deadline.wait(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=20) as client:
            yield RunningGateway(url, port, metrics, client, store)
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        assert not thread.is_alive(), "the server did not stop"
