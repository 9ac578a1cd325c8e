"""The base of the gateway's tests: a publisher in memory, and a real server on a free port."""

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import httpx

from gateway.app import create_app
from gateway.callers import Callers
from gateway.control.stores.receipts import ReceiptStore
from gateway.control.stores.redrive import (
    PAGE_BYTES_MAX,
    DeadLetterPage,
    DeadLetterStore,
    Redriven,
    Survey,
)
from gateway.control.stores.replays import ReplayStore
from gateway.fleet.claims import Claims
from gateway.fleet.key_uses import KeyUses
from gateway.fleet.quota import Quotas
from gateway.fleet.trial_news import TrialNews
from gateway.http.door import DoorProtocol
from gateway.intake.request_spans import RequestSpans
from gateway.intake.schemas import SchemaChecks
from gateway.publish.ledger import AckLedger
from gateway.publish.publisher import PostingPublisher
from gateway.routes import EventPaths
from gateway.server import api_config
from gateway.settings import Settings
from shared.config.configuration import Configuration, Stream
from shared.event.envelope import Envelope, History
from shared.event.record import Origin, RecordIn, RecordOut
from shared.event.topics import DEAD, REQUESTS, TRIALS, USES, stream_topic
from shared.proof.acked import AckedRequest, AckedRow, AckedSlice
from shared.proof.receipt import Receipt
from shared.proof.restored import Restores
from shared.proof.trail import Trail
from shared.retry.dead_letter import Age, DeadLetterFilter, Letter, Place, open_letter
from shared.retry.decision import DeadLetter
from shared.retry.routing import route, route_receipt
from shared.runtime.kafka.lookup.made_events import MadeEvents
from shared.runtime.metrics import Metrics
from shared.runtime.serving.server import HttpServer
from shared.runtime.setup_error import KafkaUnavailableError, OperatorError
from shared.runtime.tables.folders import TableCopies
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.fake_replays import FakeReplays
from tests.support.gateway.fake_store import FakeStore
from tests.support.servers.quick_server import LOOK_S, STOP_TIMEOUT_S, QuickServer


@dataclass
class FixedConfig:
    configuration: Configuration = field(default_factory=Configuration)
    problem: str | None = None
    age_s: float = 0.0


def a_dead_letter(offset: int, *, reason: str = "status_400") -> Letter:
    """Return a dead letter of the stream orders."""
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
    error: OperatorError | None = None
    # False means that a search did not reach the end of the letters.
    is_whole: bool = True
    redrives: list[DeadLetterFilter] = field(default_factory=list)
    # Requests about these streams wait until the stream's event is set; the number that waits.
    holds: dict[str, threading.Event] = field(default_factory=dict)
    held_count: int = 0

    async def survey(
        self,
        wanted: DeadLetterFilter,
        *,
        count_max: int | None = None,
        newest_max: int = 0,
        before: Age | None = None,
    ) -> Survey:
        await self._hold(wanted)
        letters = self._wanted(wanted)
        new = [letter for letter in letters if letter.place not in self.marked][:count_max]
        already = sum(letter.place in self.marked for letter in letters)
        stopped = None if self.is_whole else Place(0, 0)
        counts = Redriven(count=len(new), already=already, next=stopped)
        older = [letter for letter in letters if before is None or letter.age < before]
        newest = sorted(older, key=lambda letter: letter.age, reverse=True)
        streams = Counter(letter.stream for letter in new)
        return Survey(counts, tuple(newest[:newest_max]), self.marked, streams)

    async def page(
        self,
        wanted: DeadLetterFilter,
        *,
        after: Place | None,
        count_max: int,
        keeps_values: bool = False,
    ) -> tuple[DeadLetterPage, set[Place]]:
        await self._hold(wanted)
        found = [one for one in self._wanted(wanted) if after is None or one.place >= after]
        if not keeps_values:
            found = [replace(one, value=b"") for one in found]
        sizes = accumulate(len(one.value) for one in found)
        count = max(1, sum(1 for size in sizes if size <= PAGE_BYTES_MAX))
        page, more = found[: min(count_max, count)], found[min(count_max, count) :]
        marked = self.marked & {one.place for one in page}
        return DeadLetterPage(tuple(page), more[0].place if more else None), marked

    async def redrive(
        self, wanted: DeadLetterFilter, *, redrive_id: str, rate_per_s: float, count_max: int | None
    ) -> Redriven:
        assert redrive_id
        assert rate_per_s > 0
        self.redrives.append(wanted)
        counts = (await self.survey(wanted, count_max=count_max)).counts
        new = [each.place for each in self._wanted(wanted) if each.place not in self.marked]
        self.marked |= set(new[:count_max])
        return counts

    async def _hold(self, wanted: DeadLetterFilter) -> None:
        if wanted.stream in self.holds:
            self.held_count += 1
            await asyncio.to_thread(self.holds[wanted.stream].wait, 10)

    def _wanted(self, wanted: DeadLetterFilter) -> list[Letter]:
        if self.error is not None:
            raise self.error
        return [one for one in self.letters if wanted.takes(one)]


def a_ledger_row(
    request_id: str, *ids: str, stream: str = "orders", count: int | None = None
) -> AckedRow:
    """Return a row about one request, whose events begin at offset 10 in partition 2."""
    ids = ids or ("e-1", "e-2", "e-3")
    one = AckedSlice(10, ((len(ids), 0),), 1_000, request_id, count or len(ids))
    return AckedRow(stream_topic(stream), 2, (one,), ids)


@dataclass
class FakeReceipts:
    """The ledger, and all other records about events, in memory."""

    ledger: list[AckedRow] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    dead: list[RecordOut] = field(default_factory=list)
    # The pipeline, its event's place and id, the source's place, and the time of storing.
    derived: list[tuple[str, Origin, str, Origin, int]] = field(default_factory=list)
    # Rows of the ledger that only waiting requests see.
    late: list[AckedRow] = field(default_factory=list)
    # The time at which reading stops, as if its time limit had come.
    read_until_ms: int | None = None
    is_whole: bool = True
    # None means that the time limit came while these were read.
    restored: Restores | None = field(default_factory=Restores)
    error: KafkaUnavailableError | None = None
    # Searches for these last until their event is set.
    holds: dict[str, threading.Event] = field(default_factory=dict)
    # For each request: its starting time, and how long it would wait.
    asked: list[tuple[int, float]] = field(default_factory=list)

    async def request(self, request_id: str, *, since_ms: int, wait_s: float) -> AckedRequest:
        if self.error is not None:
            raise self.error
        self.asked.append((since_ms, wait_s))
        if request_id in self.holds:
            await asyncio.to_thread(self.holds[request_id].wait, 10)
        found = AckedRequest(request_id, read_until_ms=self.read_until_ms)
        for row in [*self.ledger, *(self.late if wait_s > 0 else ())]:
            found.take(row.to_bytes())
        return found

    async def made(
        self,
        origins: Collection[Origin],
        pipeline: str,
        stream: str,
        between_ms: tuple[int, int],
        *,
        count_max: int,
        search_s: float = 6.0,
    ) -> MadeEvents:
        assert search_s > 0
        since_ms, until_ms = between_ms[0] - 60_000, between_ms[1] + 60_000
        found = MadeEvents()
        for by, place, event_id, of, at_ms in self.derived:
            is_wanted = (by, place.topic) == (pipeline, stream_topic(stream)) and of in origins
            if is_wanted and since_ms <= at_ms <= until_ms and len(found.made) < count_max:
                found.made[place] = (event_id, of)
        found.is_whole = len(found.made) < count_max
        return found

    async def restores(self, *, search_s: float = 6.0) -> Restores | None:
        assert search_s > 0
        return self.restored

    async def trail(
        self,
        origins: Collection[Origin],
        *,
        since_ms: int,
        destination_ids: Collection[str],
        search_s: float = 6.0,
    ) -> Trail:
        assert search_s > 0
        assert all("/" in one for one in destination_ids)
        trail = Trail.of(origins)
        for receipt in self.receipts:
            row = route_receipt(receipt)
            place = Origin(row.topic, 0, 0)
            trail.take_sheet(RecordIn(place, since_ms, row.key, row.value, row.headers))
        for row in self.dead:
            place = Origin(row.topic, 0, 17)
            trail.take_dead(RecordIn(place, since_ms, row.key, row.value, row.headers))
        trail.is_whole = self.is_whole
        return trail


def config_with(*names: str) -> FixedConfig:
    return FixedConfig(Configuration(streams={name: Stream(name) for name in names}))


@dataclass
class RunningGateway:
    """A gateway that answers real HTTP on a port."""

    url: str
    port: int
    metrics: Metrics
    client: httpx.Client
    store: FakeStore
    server: HttpServer
    loop: asyncio.AbstractEventLoop
    replays: ReplayStore

    def sample(self, name: str, **labels: str) -> float:
        """Return a metric's value, or 0 while nothing has been counted."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def connections(self, what: Callable[[DoorProtocol], Any]) -> list[Any]:
        """Return a value for each open connection, read in the loop, where none is half set up."""

        async def look() -> list[Any]:
            connections = cast("set[DoorProtocol]", self.server.server_state.connections)
            return [what(one) for one in connections]

        return asyncio.run_coroutine_threadsafe(look(), self.loop).result(STOP_TIMEOUT_S)


def claims_of(publisher: PostingPublisher, fake: FakePublisher, settings: Settings) -> Claims:
    return Claims(
        publisher,
        bytes_max=settings.idempotency_bytes_max,
        deadline_s=settings.ack_deadline_s,
        search=fake.find,
    )


def _server(
    app: EventPaths,
    settings: Settings,
    followed: Callable[[], contextlib.AbstractContextManager[None]],
) -> tuple[QuickServer, socket.socket]:
    serving = api_config(app, settings)
    serving.loop = "uvloop"
    server = QuickServer(serving)
    server.followed = followed
    return server, socket.create_server(("127.0.0.1", 0), backlog=serving.backlog)


@contextlib.contextmanager
def running_gateway(
    publisher: PostingPublisher,
    config: FixedConfig,
    settings: Settings | None = None,
    *,
    ledger: AckLedger | None = None,
    dead_letters: DeadLetterStore | None = None,
    receipts: ReceiptStore | None = None,
    quotas: Quotas | None = None,
    uses: KeyUses | None = None,
    copies: TableCopies | None = None,
    spans: RequestSpans | None = None,
    replays: ReplayStore | None = None,
) -> Iterator[RunningGateway]:
    """Serve the application with uvicorn in a thread, as the real process does."""
    metrics = Metrics()
    settings, store = settings or Settings(auth="off"), FakeStore(config, publisher)
    schemas, replays = SchemaChecks(), replays or FakeReplays()
    fake = publisher if isinstance(publisher, FakePublisher) else FakePublisher([])
    claims, uses = claims_of(publisher, fake, settings), uses or KeyUses(publisher)
    app = create_app(
        settings,
        publisher=publisher,
        config=config,
        callers=Callers(config, settings, uses),
        store=store,
        metrics=metrics,
        dead_letters=dead_letters or FakeDeadLetters(),
        receipts=receipts or FakeReceipts(),
        schemas=schemas,
        claims=claims,
        quotas=quotas or Quotas(),
        trials=(trials := TrialNews(publisher)),
        ledger=ledger,
        copies=copies or TableCopies(Path("there-are-none")),
        changes=store,
        replays=replays,
    )
    app.ingest.spans = spans
    takes = {REQUESTS: claims.take, USES: uses.take, TRIALS: trials.take}
    server, front = _server(app, settings, lambda: fake.told.followed(takes))
    server.stops = replays.stop
    thread = threading.Thread(target=server.run, kwargs={"sockets": [front]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server ended instead of starting"
            thread.join(LOOK_S)
        url = f"http://127.0.0.1:{(port := front.getsockname()[1])}"
        with httpx.Client(base_url=url, timeout=20) as client:
            loop = server.servers[0].get_loop()
            yield RunningGateway(url, port, metrics, client, store, server, loop, replays)
    finally:
        server.should_exit = True
        thread.join(timeout=2 * STOP_TIMEOUT_S)
        schemas.close()
        assert not thread.is_alive(), "the server did not stop"
