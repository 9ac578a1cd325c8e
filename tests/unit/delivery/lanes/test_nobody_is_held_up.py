"""A tenant's destinations hang, one after the other: the effect on others, and on the tenant.

Virtual time, with the real book and its turns; workers finish exactly when they should, and answer
at once or not at all. The rule is in ADR 0062, "Nobody waits for anybody else".
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

import pytest

from delivery.lanes.book import Book
from delivery.lanes.marks import OPEN, Mark
from delivery.lanes.turns import Turns
from delivery.lanes.units import PATIENCE_S, Job, JobKind, Lane, Span, Strand
from shared.config.destination import Destination
from shared.event.record import KafkaPartition

pytestmark = pytest.mark.simulation

LOOK_S, ANSWER_S, TIMEOUT_S = 0.05, 0.05, 300.0
TIME_BOX_S, FOLLOW_S = 5.0, 2.0
WORKERS = 2
OWN_PLACES = 2 * WORKERS + 2
# The longest wait of a healthy destination: until a place that is never lent is free again. A job
# in one ends after the time that it follows its log, its time box, and the wait for an answer.
WAIT_S_MAX = FOLLOW_S + TIME_BOX_S + PATIENCE_S
FAR = 9_000


@cache
def destination(stream: str, name: str) -> Destination:
    return Destination(stream, name, "http://h/")


@dataclass(eq=False)
class Hand:
    """A worker that sends a span."""

    job: Job
    task: int
    strand: Strand
    span: Span
    # When all its requests are answered, or have timed out.
    over_s: float
    hangs: bool


@dataclass
class World:
    """Streams that are named TENANT_WHAT, and the events sent from them."""

    places: int = 32
    hanging_from_s: dict[str, float] = field(default_factory=dict)
    now_s: float = 0.0
    hands: list[Hand] = field(default_factory=list)
    slow: set[str] = field(default_factory=set)
    ends: dict[KafkaPartition, int] = field(default_factory=dict)
    # When each event of a stream was written, and the position of each strand.
    written: defaultdict[KafkaPartition, list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )
    at: dict[Strand, int] = field(default_factory=dict)
    waits_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    places_taken_max: int = 0

    def __post_init__(self) -> None:
        self.book = Book()
        self.turns = Turns(self.places - OWN_PLACES, FOLLOW_S, TIME_BOX_S, WORKERS)

    def enter(self, stream: str, count: int, *, behind: int = 0) -> list[str]:
        """Add this many destinations to a stream; in real time if its name ends with `live`."""
        where = KafkaPartition(f"hifi.stream.{stream}", 0)
        self.ends[where] = behind
        self.written[where] = [0.0] * behind
        self.book.see_ends({where: behind})
        names = [f"{stream}/{number}" for number in range(count)]
        for name in names:
            self.at[Strand(name, where)] = 0
            self.book.enter(Strand(name, where), Mark(0, 0))
            self.book.follow(name, is_following=stream.endswith("live"))
        return names

    def lane(self, name: str) -> Lane:
        stream, _, number = name.partition("/")
        kind = JobKind.FOLLOWING if stream.endswith("live") else JobKind.SHARED
        kind = JobKind.APART if name in self.slow else kind
        tenant = stream.partition("_")[0]
        return Lane(destination(stream, number), kind, 2_500, 0.0, tenant)

    def run(self, seconds: float, *, each_s: float, look_s: float = LOOK_S) -> None:
        """Run for this long, with an event for each stream every `each_s`."""
        ends_at_s = self.now_s + seconds
        next_s = self.now_s
        while self.now_s < ends_at_s:
            if self.now_s >= next_s:
                next_s += each_s
                for where in self.ends:
                    self.ends[where] += 1
                    self.written[where].append(self.now_s)
                self.book.see_ends(self.ends)
            self.work()
            for job in self.book.plan(self.lane, self.turns, now_s=self.now_s):
                self.hands += self.begun(job)
            tasks = {(id(hand.job), hand.task) for hand in self.hands}
            self.places_taken_max = max(self.places_taken_max, len(tasks))
            self.now_s += look_s

    def begun(self, job: Job) -> Iterator[Hand]:
        for number, units in enumerate(job.tasks):
            for unit in units:
                for name, span in unit.spans.items():
                    read_s = FOLLOW_S if span.end is None else 0.0
                    # A hurried job waits a moment for each batch until its time box is over.
                    hung_s = TIME_BOX_S + (PATIENCE_S if job.is_hurried else TIMEOUT_S)
                    hangs = self.now_s >= self.hanging_from_s.get(name, float("inf"))
                    over_s = self.now_s + read_s + (hung_s if hangs else ANSWER_S)
                    yield Hand(job, number, Strand(name, unit.where), span, over_s, hangs)

    def work(self) -> None:
        over = [hand for hand in self.hands if hand.over_s <= self.now_s]
        for hand in self.hands:
            if hand.span.end is None and not hand.hangs:
                end = self.ends[hand.strand.where]
                self.goes_on(hand.strand, end)
                self.book.went(hand.strand, Mark(end, OPEN))
        self.hands = [hand for hand in self.hands if hand.over_s > self.now_s]
        left = {id(hand.job) for hand in self.hands}
        for hand in over:
            end = self.ends[hand.strand.where] if hand.span.end is None else hand.span.end
            self.goes_on(hand.strand, end)
            if hand.span.end is None:
                self.book.ended(hand.strand, hand.span, end)
            else:
                self.book.went(hand.strand, Mark(end, end))
            if hand.hangs:
                self.slow.add(hand.strand.destination)
        for job in {id(hand.job): hand.job for hand in over if id(hand.job) not in left}.values():
            self.turns.end(job)

    def goes_on(self, strand: Strand, end: int) -> None:
        begin, self.at[strand] = self.at[strand], max(self.at[strand], end)
        if begin < end:
            oldest_s = self.written[strand.where][begin]
            self.waits_s[strand.destination].append(self.now_s - oldest_s)

    def strand(self, name: str) -> Strand:
        return next(each for each in self.at if each.destination == name)

    def oldest_s(self, names: Iterable[str]) -> float:
        """Return the longest time that any event of these destinations has waited."""
        waits_s = [wait_s for name in names for wait_s in self.waits_s[name]]
        for strand, at in self.at.items():
            if strand.destination in names:
                waits_s += [self.now_s - each for each in self.written[strand.where][at : at + 1]]
        return max(waits_s)


@pytest.mark.parametrize("places", [32, OWN_PLACES])
@pytest.mark.parametrize("behind", [0, FAR])
def test_two_hundred_that_hang_one_after_the_other_hold_up_no_other(
    places: int, behind: int
) -> None:
    world = World(places)
    bad = [name for n in range(200) for name in world.enter(f"bad_{n}", 1, behind=behind)]
    world.hanging_from_s = {name: 0.1 * n for n, name in enumerate(bad)}
    its_own = [*world.enter("bad_well", 5), *world.enter("bad_live", 2)]
    others = [*world.enter("good_well", 50), *world.enter("good_live", 5)]
    world.run(25.0, each_s=0.5)
    assert world.places_taken_max <= places
    assert world.oldest_s(others) < WAIT_S_MAX <= 2 * TIME_BOX_S
    assert world.oldest_s(its_own) < WAIT_S_MAX
    if places > OWN_PLACES:
        # Another tenant's hang costs at most one short job.
        assert world.oldest_s(others) < PATIENCE_S


def test_what_is_slow_or_behind_of_another_tenant_has_slots_all_the_time() -> None:
    world = World()
    bad = [name for n in range(60) for name in world.enter(f"bad_{n}", 1, behind=FAR * (n % 2))]
    world.hanging_from_s = dict.fromkeys(bad, 0.0)
    world.run(10.0, each_s=0.5)
    (slow,) = world.enter("good_slow", 1)
    world.slow.add(slow)
    (far,) = world.enter("good_far", 1, behind=FAR)
    world.run(20.0, each_s=0.5)
    assert world.oldest_s([slow]) < PATIENCE_S
    assert world.at[world.strand(far)] > FAR, "it has sent its whole backlog and the new events"


def test_many_tenants_that_hang_hold_up_no_other_and_their_own_comes_again() -> None:
    world = World()
    bad = [name for n in range(120) for name in world.enter(f"bad{n % 8}_{n}", 1)]
    world.hanging_from_s = {name: 0.1 * n for n, name in enumerate(bad)}
    its_own = [*world.enter("bad0_well", 2), *world.enter("bad7_live", 2)]
    (its_slow,) = world.enter("bad0_slow", 1)
    others = [*world.enter("good_well", 20), *world.enter("good_live", 2)]
    (slow,) = world.enter("good_slow", 1)
    world.slow |= {slow, its_slow}
    world.run(15.0, each_s=0.5)
    assert world.places_taken_max <= 32
    assert world.oldest_s([*others, *its_own, slow]) < WAIT_S_MAX
    # The tenant's places are all taken by hanging ones, so the slow one waits for one of those.
    world.run(TIMEOUT_S + TIME_BOX_S, each_s=10.0, look_s=1.0)
    assert world.oldest_s([its_slow]) <= TIMEOUT_S + TIME_BOX_S


def p99_s(*, bad_count: int) -> float:
    """Return the p99 wait of 180 healthy destinations beside slow and hanging ones."""
    world = World()
    well = [name for n in range(60) for name in world.enter(f"t_{n}", 3)]
    bad = world.enter("t_bad", bad_count)
    world.slow = set(bad[::2])
    world.hanging_from_s = {name: 3.0 + n for n, name in enumerate(bad[1::2])}
    world.run(15.0, each_s=0.2)
    waits_s = sorted(wait_s for name in well for wait_s in world.waits_s[name])
    return waits_s[int(0.99 * len(waits_s))]


def test_a_crowd_of_the_bad_makes_those_that_are_well_wait_no_longer_than_by_half() -> None:
    """This is the benchmark's crowded_ratio, without the cost of processors."""
    assert p99_s(bad_count=20) <= 1.5 * p99_s(bad_count=0)
