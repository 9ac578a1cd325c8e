"""Seeded runs: wild clocks, stuck logs, an hour of backlog, idle streams, deaths.

Everything is real except Kafka, whose logs are lists, and Spark, whose rule for late events is
written again here. A run is replayed by its seed, which is part of its test's name.
"""

import json
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest

from pipelines.jobs.lane_states import LaneState, kept_for
from pipelines.jobs.outcomes import Results
from pipelines.lanes.book import PipelineBook
from pipelines.lanes.portions import PipelinePortion, PlannedJob
from pipelines.windows.partials import AHEAD_MS_MAX
from shared.config.pipeline import Pipeline
from shared.event.record import KafkaPartition
from shared.event.times import DAY_MS, HOUR_MS, MINUTE_MS
from shared.runtime.kafka.leases.fenced_positions import Reach

pytestmark = pytest.mark.simulation

PIPELINE = Pipeline.of(
    {
        "name": "p",
        "from": {"stream": "s"},
        "schema": "k STRING",
        "steps": [
            {
                "window": {
                    "every": "1 minute",
                    "late": "30 seconds",
                    "by": ["k"],
                    "compute": {"n": "count(*)"},
                    "emit": "final",
                }
            }
        ],
        "to": [{"stream": "t"}],
    }
)
WINDOW = PIPELINE.window
assert WINDOW is not None
PLACES = [KafkaPartition("hifi.stream.s", number) for number in range(4)]
LANE = PIPELINE.lane_id
START_MS = 1_800_000_000_000
RUN_MS = 40 * MINUTE_MS
LOOK_MS = 100
# Issue 18: by then, a window of an idle stream is closed.
CLOSED_WITHIN_MS = 2_000


@dataclass
class Run:
    """A stream, and the process that counts it."""

    dice: random.Random
    now_ms: int = START_MS
    # For each partition: when each event was stored, the time that it gives, and its key.
    logs: dict[KafkaPartition, list[tuple[int, int, str]]] = field(
        default_factory=lambda: {where: [] for where in PLACES}
    )
    stored: dict[bytes, bytes | None] = field(default_factory=dict)
    position: dict[KafkaPartition, int] = field(default_factory=lambda: dict.fromkeys(PLACES, 0))
    away: set[KafkaPartition] = field(default_factory=set)
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    written_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    late: int = 0
    job: tuple[int, PlannedJob, list[dict[str, Any]], Results] | None = None

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Continue from the stored records, and from nothing else, as a new process does."""
        self.job = None
        self.book = PipelineBook(events_max=200, time_box_s=5.0, own_jobs_max=4)
        reaches = {where: Reach(at, at) for where, at in self.position.items()}
        self.book.enter(LANE, "default", reaches, keeps=10_000)
        kept = kept_for(PIPELINE)
        assert kept is not None
        for record in self.stored.items():
            kept.read(*record)
        self.keeper = LaneState("default", kept)
        self.book.lanes[LANE].closes_at_ms = kept.closes_at_ms

    def post(self, count: int) -> None:
        for _ in range(count):
            where = self.dice.choice([it for it in PLACES if it not in self.away])
            off_ms = self.dice.choice([0, 0, 0, 0, -20_000, -40_000, -DAY_MS, DAY_MS, 60_000])
            happened_ms = self.now_ms + off_ms - self.dice.randrange(1_000)
            self.logs[where].append((self.now_ms, happened_ms, self.dice.choice("ab")))

    def look(self) -> None:
        """Look as the loop does: fetch the ends where a broker answers."""
        ends = {where: len(log) for where, log in self.logs.items() if where not in self.away}
        # The brokers' time as the process knows it, which is never later than the real one.
        self.book.see_ends(ends, self.now_ms - self.dice.randrange(20))
        if self.job is not None and self.now_ms >= self.job[0]:
            self.end(*self.job[1:])
        if self.job is None:
            now_s = self.now_ms / 1000
            for job in [*self.book.plan(now_s), *self.book.to_close(now_s)][:1]:
                found, made = self.counted(job.portions[0])
                took_ms = 1 if job.is_quick else self.dice.randrange(50, 900)
                self.job = (self.now_ms + took_ms, job, found, made)

    def counted(self, portion: PipelinePortion) -> tuple[list[dict[str, Any]], Results]:
        """Count the events of a job, as Spark does."""
        assert WINDOW is not None
        frontier_ms = self.keeper.kept.head.frontier_ms
        groups: dict[tuple[int, str], list[int]] = defaultdict(list)
        stored_ms: dict[KafkaPartition, int] = {}
        late = 0
        for where, (begin, end) in portion.ranges.items():
            for at_ms, says_ms, key in self.logs[where][begin:end]:
                happened_ms = min(says_ms, at_ms + AHEAD_MS_MAX)
                stored_ms[where] = max(at_ms, stored_ms.get(where, 0))
                if happened_ms < max(at_ms, frontier_ms) - WINDOW.late_ms:
                    late += 1
                else:
                    start_ms = happened_ms - happened_ms % WINDOW.every_ms
                    groups[start_ms, key].append(happened_ms)
        found = [
            {
                "start": start_ms,
                "end": start_ms + WINDOW.size_ms,
                "by": json.dumps({"k": key}),
                "last": max(times),
                "accepted": 0,
                "nth": -1,
                "text": None,
                "n": len(times),
                "p0": len(times),
            }
            for (start_ms, key), times in groups.items()
        ]
        passed = sum(len(times) for times in groups.values())
        return [{"late": late}], Results(passed=passed, stored_ms=stored_ms, found=found)

    def end(self, job: PlannedJob, told: list[dict[str, Any]], made: Results) -> None:
        """Store all results of the job; only then do they count."""
        portion = job.portions[0]
        change, _ = self.keeper.change(PIPELINE, portion, made, PLACES, room=2**40)
        self.stored |= dict(change.records)
        self.position |= {where: end for where, (_, end) in portion.ranges.items()}
        self.late += told[0]["late"]
        for row in change.rows:
            key = (row.group, row.start_ms)
            assert key not in self.counts, "a closed window was written again"
            self.counts[key] = json.loads(row.value)["n"]
            self.written_ms[key] = self.now_ms
        self.keeper.is_done(change, portion, made)
        self.book.closes_at(portion, self.keeper.kept.closes_at_ms)
        self.book.done(job, 0.1, self.now_ms / 1000)
        self.book.over(job)
        self.job = None

    @property
    def is_done(self) -> bool:
        """Return whether everything is read, and no window is open."""
        return not self.book.news(LANE) and len(self.keeper.kept) == 0 and self.job is None


def run(seed: int) -> Run:
    it = Run(random.Random(seed))
    backlog = seed % 3 == 0
    stopped_from = START_MS + it.dice.randrange(2 * MINUTE_MS, 12 * MINUTE_MS)
    idle_from = START_MS + it.dice.randrange(25 * MINUTE_MS, 35 * MINUTE_MS)
    if backlog:
        # An hour of events is there before anybody reads.
        for _ in range(600):
            it.now_ms += HOUR_MS // 600
            it.post(it.dice.randrange(8))
        stopped_from, idle_from = stopped_from + HOUR_MS, idle_from + HOUR_MS
    until_ms = it.now_ms + RUN_MS
    while it.now_ms < until_ms:
        it.now_ms += LOOK_MS
        is_stopped = stopped_from <= it.now_ms < stopped_from + 10 * MINUTE_MS
        it.away = {PLACES[seed % 4]} if is_stopped else set()
        if it.now_ms < idle_from and it.dice.random() < 0.2:
            it.post(it.dice.randrange(3))
        if it.dice.random() < 0.0005:
            # The process dies: another one repeats all that was under way.
            it.begin()
        it.look()
    while not it.is_done and it.now_ms < until_ms + 10 * MINUTE_MS:
        it.now_ms += LOOK_MS
        it.look()
    return it


def check(seed: int) -> None:
    it = run(seed)
    read = sum(map(len, it.logs.values()))
    assert it.is_done
    assert read > 1_000
    # No event was dropped: each is in a window that was written, or was late and counted as late.
    assert sum(it.counts.values()) + it.late == read
    # The last windows of the stream closed in time, though nothing more arrived.
    assert WINDOW is not None
    last = max(max((at for at, _, _ in log), default=0) for log in it.logs.values())
    over = {key: key[1] + WINDOW.size_ms + WINDOW.late_ms for key in it.counts}
    idle = {key: at for key, at in over.items() if at > last + 10_000}
    assert idle
    for key, at in idle.items():
        assert it.written_ms[key] - at <= CLOSED_WITHIN_MS, key


@pytest.mark.parametrize("seed", range(3))
def test_each_event_is_counted_once_or_is_late(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3, 203))
def test_each_event_of_many_runs_is_counted_once_or_is_late(seed: int) -> None:
    check(seed)
