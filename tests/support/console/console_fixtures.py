"""Gives tests a console that is really served, over an overview that the test makes up."""

import asyncio
import itertools
import re
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import httpx
import pytest
from msgspec import structs

from console.server import serve_console
from gateway.settings import Settings
from observe.series.series import Past, Series
from observe.settings import ConsoleSettings
from shared.config.access import ApiKey
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.event.envelope import Envelope
from shared.event.places import Places
from shared.event.record import Origin
from shared.event.topics import stream_topic
from shared.flow.flow_record import FlowRecord
from shared.proof.acked import AckedRequest
from shared.proof.balance import Balance
from shared.proof.last_answer import FailedTry
from shared.proof.overview import (
    Answers,
    AuditHealth,
    DestinationView,
    MinuteBooks,
    MinuteState,
    Missing,
    Overview,
    Quantiles,
    RefusedRequest,
    Stage,
    StageLag,
    StreamVerdict,
    StreamView,
)
from shared.proof.receipt import CoveredOffsets, Receipt, ReceiptOutcome
from shared.proof.trail import Trail
from shared.retry.dead_letter import Letter
from shared.runtime.clock import now_ms
from shared.runtime.kafka.lookup.event_search import FoundEvent, SearchResult
from shared.runtime.kafka.lookup.key_search import KeyedEvents
from shared.runtime.kafka.lookup.streams_with_id import PlacesOf, StreamsWithId, streams_with_id
from tests.support.console.browser import CHROMIUM, Browser
from tests.support.console.past_series import no_past
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.fake_replays import replays_of
from tests.support.gateway.fake_store import FakeStore
from tests.support.gateway.gateway_fixtures import (
    FakeDeadLetters,
    FixedConfig,
    RunningGateway,
    a_dead_letter,
    running_gateway,
)
from tests.support.servers.quick_server import QuickServer
from tests.support.suite.programs import program

_START_S = 30.0
_OFFSETS = itertools.count()


@dataclass
class GivenEvents:
    """A fake event search: it knows a test's events, and notes its requests."""

    found: dict[tuple[str, str], FoundEvent] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    requests: dict[str, AckedRequest] = field(default_factory=dict)
    destination_ids: Collection[str] = ()
    has_index: bool = True
    # The index's answer; without one it has the given events.
    places: PlacesOf | None = None

    async def find(
        self,
        stream: str,
        event_id: str,
        *,
        before_ms: int | None = None,
        destination_ids: Collection[str] = (),
    ) -> SearchResult:
        self.destination_ids = destination_ids
        assert before_ms is None or before_ms > 0
        self.asked.append((stream, event_id))
        found = self.found.get((stream, event_id))
        return SearchResult((found,) if found else (), records_read=7)

    async def among(self, streams: Sequence[str], event_id: str) -> StreamsWithId:
        places = (self.places or self._places) if self.has_index else None
        return streams_with_id(places, streams, event_id)

    async def of_key(self, streams: Sequence[str], key: str) -> KeyedEvents:
        told = streams_with_id(self._places_by_key if self.has_index else None, streams, key)
        in_them = [each for (stream, _), each in self.found.items() if stream in told.streams]
        had = [each for each in in_them if each.envelope.key == key.encode()]
        known = [(each.envelope, each.stored_at_ms) for each in had]
        return KeyedEvents(told, tuple(sorted(known, key=lambda each: -each[1])))

    async def request(self, request_id: str, *, since_ms: int) -> AckedRequest:
        self.asked.append((request_id, str(since_ms)))
        return self.requests.get(request_id, AckedRequest(request_id))

    def _places_by_key(self, topic: str, key: str) -> Places:
        keys = {(stream_topic(name), it.envelope.key) for (name, _), it in self.found.items()}
        return Places(((0, 1, 2),) if (topic, key.encode()) in keys else ())

    def _places(self, topic: str, event_id: str) -> Places:
        has = any((stream_topic(stream), event_id) == (topic, it) for stream, it in self.found)
        return Places(((0, 1, 2),) if has else ())


@dataclass
class RunningConsole:
    """A console on a port beside a gateway; the test controls everything that it shows."""

    config: FixedConfig
    events: GivenEvents
    dead: FakeDeadLetters
    flows: dict[str, FlowRecord]
    gateway: RunningGateway
    port: int = 0
    overview: Overview = field(default_factory=lambda: Overview(0, (), AuditHealth()))
    series: Series = field(default_factory=no_past)
    told: dict[str, Any] = field(default_factory=dict)
    # The loop on which it serves, with its other work.
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    @property
    def store(self) -> FakeStore:
        return self.gateway.store

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def past(
        self, streams: Sequence[str], takers: Sequence[str], level: int, *, now_ms: int
    ) -> Past:
        return self.series.past(streams, takers, level, now_ms=now_ms)

    def show(self, overview: Overview) -> None:
        """Put in a new overview, as the sampler does."""
        self.overview = overview


@contextmanager
def running_console(
    auth: Literal["off", "keys"],
    *,
    gateway: str | None = None,
    gateway_auth: Literal["off", "keys"] | None = None,
) -> Iterator[RunningConsole]:
    """Run console and gateway, both with or without keys, or a console for a remote gateway."""
    settings = ConsoleSettings(port=0, auth=auth, gateway=gateway or "")
    with served_console(settings, Settings(auth=gateway_auth or auth)) as running:
        yield running


@contextmanager
def served_console(settings: ConsoleSettings, behind: Settings) -> Iterator[RunningConsole]:
    """Serve a console with these settings, by default in front of a gateway of `behind`."""
    config, dead = FixedConfig(), FakeDeadLetters()
    with running_gateway(FakePublisher([]), config, behind, dead_letters=dead) as running:
        told = settings.model_copy(update={"gateway": settings.gateway or running.url})
        yield from _running_console(told, RunningConsole(config, GivenEvents(), dead, {}, running))


def _running_console(
    settings: ConsoleSettings, running: RunningConsole
) -> Iterator[RunningConsole]:
    started, stop, loop = threading.Event(), asyncio.Event(), running.loop

    def on_started(port: int) -> None:
        running.port = port
        started.set()

    def serve() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(
                serve_console(
                    settings,
                    overview=lambda: running.overview,
                    configuration=lambda: running.config.configuration,
                    flows=lambda: running.flows,
                    events=running.events,
                    series=running,
                    told=lambda: running.told,
                    stop=stop,
                    on_started=on_started,
                )
            )

    thread = threading.Thread(target=serve, daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("console.server.HttpServer", QuickServer)
        thread.start()
        is_up = started.wait(_START_S)
    try:
        assert is_up, "the console has not started"
        yield running
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_START_S)
        assert not thread.is_alive(), "the console does not stop"


@pytest.fixture(scope="session")
def open_console() -> Iterator[RunningConsole]:
    with running_console("off") as running:
        yield running


@pytest.fixture
def console(open_console: RunningConsole) -> RunningConsole:
    """Return an open console, as `hifi up` serves it, without traces of the test before."""
    open_console.config.configuration = Configuration()
    events, dead = open_console.events, open_console.dead
    for made in (events.found, events.asked, dead.letters, dead.marked, dead.redrives):
        made.clear()
    replays_of(open_console.gateway).known.clear()
    open_console.dead.error = None
    open_console.dead.is_whole = True
    open_console.flows.clear()
    open_console.store.states.clear()
    open_console.store.recorded.clear()
    open_console.series.close()
    open_console.series = no_past()
    configure(open_console)
    open_console.show(overview())
    return open_console


@pytest.fixture
def client(console: RunningConsole) -> Iterator[httpx.Client]:
    """Return an HTTP client of that console."""
    with httpx.Client(base_url=console.url, verify=False) as client:
        yield client


@pytest.fixture
def locked_console() -> Iterator[RunningConsole]:
    """Run a console that requires keys."""
    with running_console("keys") as running:
        configure(running)
        running.show(overview())
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Run one Chromium for all tests; each opens tabs of its own."""
    with Browser(program(*CHROMIUM)) as running:
        yield running


def csrf_of(page: str) -> str:
    """Return the token in the forms of a page."""
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert found, page[:2000]
    return found[1]


def configure(running: RunningConsole, *keys: ApiKey) -> None:
    """Set up two streams of two tenants, and three destinations."""
    destinations = [
        Destination("orders", "billing", "https://billing.example/hooks"),
        Destination("orders", "lake", "https://lake.example/in"),
        Destination("players", "stats", "https://stats.example/"),
    ]
    streams = [Stream("orders"), Stream("players", tenant="studio")]
    objects: list[Stream | Destination | ApiKey] = [*streams, *destinations, *keys]
    configuration = running.config.configuration
    for each in objects:
        configuration = configuration.apply(each.config_key, each.to_json())
    running.config.configuration = configuration


def overview(*, at_ms: int | None = None, unaccounted: int = 0) -> Overview:
    """Return an overview with one slow destination and others well; or one with lost events."""
    at_ms = now_ms() if at_ms is None else at_ms
    billing = destination_view("orders", "billing", at_ms=at_ms, lost=unaccounted)
    lake = replace(
        destination_view("orders", "lake", at_ms=at_ms, slow=40.0),
        verdict=StreamVerdict.SLOW,
        reason="p95 is 4.1 s, over 2 s for 3 minutes",
    )
    stats = destination_view("players", "stats", at_ms=at_ms)
    word = StreamVerdict.LOSING if unaccounted else StreamVerdict.SLOW
    return Overview(
        at_ms=at_ms,
        streams=(
            StreamView("orders", word, lake.reason, 812.5, quantiles(140), (billing, lake), 10_004),
            StreamView("players", StreamVerdict.OK, "", 55.0, quantiles(90), (stats,), 10_004),
        ),
        audit=AuditHealth(last_run_ms=at_ms - 20_000, last_run_took_s=1.2, problem=""),
    )


def every_verdict() -> Overview:
    """Return a stream with a destination of each verdict."""
    one = overview().streams[0].destinations[0]
    views = tuple(
        replace(one, name=verdict.name.lower(), verdict=verdict, reason="the reason")
        for verdict in StreamVerdict
    )
    stream = StreamView("orders", StreamVerdict.LOSING, "", 1.0, quantiles(90), views, 10_004)
    return replace(overview(), streams=(stream,))


def destination_view(
    stream: str, name: str, *, at_ms: int, slow: float = 1.0, lost: int = 0
) -> DestinationView:
    means = {Stage.GATEWAY: 6, Stage.QUEUE: 4, Stage.DELIVERY: 90 * slow}
    stages = tuple(StageLag(stage, process=quantiles(mean)) for stage, mean in means.items())
    whole = quantiles(sum(means.values()))
    identity = f"{stream}/{name}"
    busy = FailedTry(at_ms - 9_000, "status_503", 12, 503, "no healthy upstream")
    refused = RefusedRequest("msg_2c4205b50dd1", 12, busy)
    return DestinationView(
        stream=stream,
        name=name,
        destination_id=identity,
        verdict=StreamVerdict.LOSING if lost else StreamVerdict.OK,
        reason=f"{lost} events are unaccounted for" if lost else "",
        balance=Balance(10_004, 9_900 - lost, 60, 4, 40, lost),
        stages=stages,
        end_to_end=whole,
        since_accepted=whole,
        backlog_events=40,
        backlog_bytes=20_480,
        oldest_age_s=1.4 * slow,
        silent_s=0.0,
        waiting_by_cause={"failed attempt": 48, "breaker open": 12},
        delivered_per_s=12.5,
        answers=Answers({"status_200": 31, "status_503": 2}, (refused,)),
        minutes=minutes(stream, identity, at_ms=at_ms, lost=lost),
    )


def minutes(stream: str, identity: str, *, at_ms: int, lost: int = 0) -> tuple[MinuteBooks, ...]:
    """Return minutes: the newest two open, one unknown, and one with any lost events."""
    newest_ms = at_ms - at_ms % 60_000
    found = []
    for back in range(50):
        state = MinuteState.UNCHECKED if back < 2 else MinuteState.CHECKED
        state = MinuteState.CANNOT_TELL if back == 9 else state
        has_lost = lost and back == 5
        found.append(
            MinuteBooks(
                stream, identity, newest_ms - back * 60_000,
                MinuteState.LOSS if has_lost else state,
                acked=200, delivered=200 - (lost if has_lost else 0), waiting=0, dead=0, queued=0,
                lost={Stage.QUEUE: lost} if has_lost else {},
                missing=(Missing("e-17", Stage.QUEUE, "log", 1, 4711),) if has_lost else (),
                problem="a receipt could not be read" if back == 9 else "",
            )
        )  # fmt: skip
    return tuple(found)


def quantiles(mean_ms: float) -> Quantiles:
    return Quantiles(500, mean_ms, 0.8 * mean_ms, 2.1 * mean_ms, 3.4 * mean_ms)


def letter(event_id: str, *, stream: str = "orders", reason: str = "status_400") -> Letter:
    """Return a dead letter; each has an offset of its own."""
    made = a_dead_letter(next(_OFFSETS), reason=reason)
    return replace(made, event_id=event_id, stream=stream, destination_id=f"{stream}/billing")


def found_event(event_id: str, *, value: bytes = b'{"says":"hello"}') -> FoundEvent:
    """Return an event that was accepted, stored, refused once, and then delivered."""
    origin = Origin("the log", 1, 4711)
    at_ms = 1_790_000_000_000
    envelope = Envelope(origin, value, b"user-7", "orders", event_id, at_ms - 250, at_ms)
    receipt = Receipt(
        destination_id="orders/billing", outcome=ReceiptOutcome.WAITING, reason="status_503",
        batch_id="b-1", event_count=12, minutes={},
        covered=(CoveredOffsets("the log", 1, 4711, 4723),), event_time_ms_min=at_ms - 250,
        accepted_at_ms_min=at_ms, attempt=1, started_at_ms=at_ms + 40, ended_at_ms=at_ms + 90,
        failed_tries=(FailedTry(at_ms + 90, "status_503", 50, 503, "no healthy upstream"),),
    )  # fmt: skip
    delivered = structs.replace(
        receipt, outcome=ReceiptOutcome.DELIVERED, reason="", attempt=2, failed_tries=(),
        started_at_ms=at_ms + 30_100, ended_at_ms=at_ms + 30_160,
    )  # fmt: skip
    return FoundEvent(
        envelope, at_ms + 5, Trail({}, [receipt, delivered]), around={4711: event_id, 4712: "e-2"}
    )
