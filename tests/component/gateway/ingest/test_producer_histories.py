"""The gateway's answers stay true in random histories of Kafka partitions in virtual time."""

import asyncio
import logging
import sys
from collections import Counter
from random import Random

import pytest
import structlog

from gateway.intake.events import Event
from gateway.publish import batch_producer, publisher
from gateway.publish.publisher import KafkaPublisher
from gateway.publish.report import Fate
from tests.support.kafka.kafka_model import BROKERS, ModelCluster
from tests.support.kafka.kafka_model_client import ModelClient, event_value
from tests.support.suite.virtual_time import VirtualTime

_TOPIC = "ours"
# The gateway's own deadlines: for an answer, in the queue, and for a request to a broker.
_ACK_S, _QUEUE_S, _REQUEST_S = 5.0, 1.5, 2.5
_TROUBLE_S = 14.0


class History:
    """The answers that senders got, and the contents of the log after all faults have ended."""

    def __init__(self, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.rng = Random(seed)
        self.faults: list[str] = []
        self.told: dict[str, tuple[Fate, float]] = {}
        # The Kafka partition and offset of a stored event, as its answer names them.
        self.places: dict[str, tuple[int | None, int | None]] = {}
        self.counted: Counter[str] = Counter()

    async def play(self) -> None:
        rng = self.rng
        model = ModelCluster(rng, rng.randint(1, 3), topic=_TOPIC)
        living = asyncio.create_task(model.run())
        self.clients = [ModelClient(model, _REQUEST_S) for _ in range(rng.randint(1, 2))]
        publishers = [await self._publisher(client) for client in self.clients]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._make_trouble(model))
            for number in range(rng.randint(2, 6)):
                group.create_task(self._send(f"s{number}", rng.choice(publishers)))
        model.heal()
        async with asyncio.timeout(60):
            # Let requests on the wire arrive, and each broker start again.
            await asyncio.sleep(10)
            while not model.is_level():  # noqa: ASYNC110 - the model has no event for it
                await asyncio.sleep(1)
        for each in publishers:
            await each.stop()
        living.cancel()
        self.counted += model.seen
        self._judge(model)

    async def _publisher(self, client: ModelClient) -> KafkaPublisher:
        made = KafkaPublisher(
            "nowhere", ack_deadline_s=_ACK_S, queue_deadline_s=_QUEUE_S, batch_bytes_max=2_000
        )
        self.patch.setattr(batch_producer, "new_client", lambda *_, **__: client)
        await made.start(deadline_s=60)
        return made

    async def _send(self, name: str, publisher: KafkaPublisher) -> None:
        loop, rng, sent = asyncio.get_running_loop(), self.rng, 0
        end_s = loop.time() + _TROUBLE_S
        while loop.time() < end_s:
            ids = [f"{name}x{sent + n}" for n in range(rng.choice((1, 1, 1, 3, 40)))]
            sent += len(ids)
            key = rng.choice((None, None, b"a", b"b"))
            events = [Event.of(id=i, key=key, value=event_value(i), headers=()) for i in ids]
            for report in await publisher.publish(_TOPIC, events):
                for nth, position in enumerate(report.positions):
                    assert ids[position] not in self.told, "an event got two answers"
                    self.told[ids[position]] = report.fate, loop.time()
                    if report.fate is Fate.STORED:
                        assert report.first_offset is not None
                        self.places[ids[position]] = report.partition, report.first_offset + nth
            assert set(ids) <= self.told.keys(), "an event got no answer"
            await asyncio.sleep(rng.choice((0.01, 0.05, 0.3)))

    async def _make_trouble(self, model: ModelCluster) -> None:
        rng, loop = self.rng, asyncio.get_running_loop()
        end_s = loop.time() + _TROUBLE_S
        under_way: set[asyncio.Task[None]] = set()
        while loop.time() < end_s:
            await asyncio.sleep(rng.uniform(0.1, 2.5))
            number, for_s = rng.choice(BROKERS), rng.choice((0.3, 1.0, 2.5, 7.0))
            fault = rng.choice(
                (model.pause, model.pause, model.kill, model.stop_in_order, None, None)
            )
            if fault is None:
                model.move_leader()
                continue
            self.faults.append(f"{loop.time():.2f} {fault.__name__} {number} {for_s}")
            under_way.add(asyncio.create_task(fault(number, for_s)))
        await asyncio.gather(*under_way)

    def _judge(self, model: ModelCluster) -> None:
        where: dict[str, list[tuple[int, int]]] = {}
        for place in model.partitions:
            for offset, event_id in model.log(place):
                where.setdefault(event_id, []).append((place.partition, offset))
        written = Counter[str]()
        for client in self.clients:
            for event_id, at_s in client.written_at_s.items():
                fate, told_s = self.told[event_id]
                written["after its unknown"] += fate is Fate.UNKNOWN and at_s > told_s
                written["after its refusal"] += fate is Fate.NOT_STORED and at_s > told_s
        for event_id, (fate, _) in self.told.items():
            self.counted[fate.name] += 1
            is_there = event_id in where
            self.counted["unknown and there"] += fate is Fate.UNKNOWN and is_there
            self.counted["yes, not in the log"] += fate is Fate.STORED and not is_there
            self.counted["no, in the log"] += fate is Fate.NOT_STORED and is_there
            if fate is Fate.STORED and is_there:
                self.counted["yes, elsewhere"] += self.places[event_id] not in where[event_id]
        self.counted["twice"] += sum(len(found) > 1 for found in where.values())
        self.counted += written


_UNTRUTHS = (
    "yes, not in the log",
    "no, in the log",
    "yes, elsewhere",
    "twice",
    "after its unknown",
    "after its refusal",
)
# Each of these must happen, or the histories prove little.
_MUST_HAPPEN = (
    Fate.STORED.name,
    Fate.NOT_STORED.name,
    Fate.UNKNOWN.name,
    "unknown and there",
    "elections",
    "kills",
    "lost answers",
    "orderly stops",
    "pauses",
    "refused 19",
    "repeats",
    "resigned after the append",
    "stragglers",
    "truncated",
)


def play_histories(monkeypatch: pytest.MonkeyPatch, seeds: range) -> Counter[str]:
    """Play histories, and fail with the seed of the first one with a false answer."""
    clock = VirtualTime(1_000.0)
    monkeypatch.setattr(batch_producer, "monotonic", clock.monotonic)
    monkeypatch.setattr(publisher, "monotonic", clock.monotonic)
    monkeypatch.setattr(publisher, "check_access", _let_in)
    # A log line for each attempt would take half of the time.
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    monkeypatch.setattr(batch_producer, "log", structlog.wrap_logger(None, wrapper_class=quiet))
    counted: Counter[str] = Counter()
    for seed in seeds:
        history = History(seed, monkeypatch)
        clock.run(history.play())
        found = {each: history.counted[each] for each in _UNTRUTHS if history.counted[each]}
        assert not found, f"seed {seed}: {found}, after {history.faults}"
        counted += history.counted
    none = dict.fromkeys(_UNTRUTHS, 0)
    sys.stdout.write(f"{len(seeds):,} histories: {none | dict(sorted(counted.items()))}\n")
    assert not [each for each in _MUST_HAPPEN if not counted[each]]
    return counted


async def _let_in(_: str) -> None:
    """Allow everything, as the model's brokers do."""


def test_acknowledged_is_in_the_log_in_100_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    play_histories(monkeypatch, range(100))


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_acknowledged_is_in_the_log_in_5000_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = play_histories(monkeypatch, range(1_000, 6_000))
    assert counted["refused 47"], "no late write met the next epoch"
