"""A book keeps its promises, whatever workers do and in whatever order their reports arrive.

No two workers have the same offset, no strand skips an offset or goes back, and possible repeats
are labelled.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import NamedTuple

import pytest

from delivery.lanes.book import Book
from delivery.lanes.marks import OPEN, Mark
from delivery.lanes.turns import Turns
from delivery.lanes.units import Job, JobKind, Lane, Span, Strand, Unit
from shared.config.destination import Destination
from shared.event.record import KafkaPartition

PLACES = [KafkaPartition("hifi.stream.s", number) for number in range(2)]
DESTINATIONS = {f"s/{name}": Destination("s", name, "http://localhost/") for name in "ab"}
STRANDS = [Strand(name, where) for name in DESTINATIONS for where in PLACES]
# Sometimes enough events for a lane to fall far behind.
COUNTS = (1, 1, 2, 3, 5, 5, 8, 3_000)
STEPS = 1_500


# The kinds of job that a destination may be planned as.
_KINDS = (JobKind.SHARED, JobKind.FOLLOWING, JobKind.FOLLOWING, JobKind.APART)


@dataclass(eq=False)
class Hand:
    """A worker that sends a span."""

    strand: Strand
    span: Span
    stored: int
    sent: int


class StrandReport(NamedTuple):
    """A job's report about a strand, once the whole job is over."""

    strand: Strand
    span: Span
    at: int
    is_cut: bool


@dataclass
class Refusing(Turns):
    """Turns that refuse some kinds of job, as if too many were running."""

    refused: set[JobKind] = field(default_factory=set)

    def may_start(self, kind: JobKind, tenant: str, *, now_s: float) -> bool:
        del tenant, now_s
        return kind not in self.refused


def _begin_of(unit: Unit) -> int:
    return unit.begin


class World:
    """Kafka, some workers, and a driver with its book."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.now_s = 0.0
        self.ends = dict.fromkeys(PLACES, 0)
        self.hands: list[Hand] = []
        self.said: list[StrandReport] = []
        # The marks as written, and those that the driver has not read yet.
        self.marks: dict[Strand, Mark] = {}
        self.unheard: list[tuple[Strand, Mark]] = []
        # Offsets below which all events are sent; stored with their outcome; in doubt after a
        # crash.
        self.sent: defaultdict[Strand, int] = defaultdict(int)
        self.stored: defaultdict[Strand, int] = defaultdict(int)
        self.doubt: defaultdict[Strand, int] = defaultdict(int)
        self.start_anew()

    def turn(self) -> None:
        """Let a random thing happen; the weights make some of them rare."""
        acts = {
            self.events_come: 4.0,
            self.look: 4,
            self.plan: 6,
            self.work: 6,
            self.finish: 3,
            self.repeat_a_last_word: 0.5,
            self.hear_marks: 4,
            self.hear_a_job: 3,
            self.fail: 1,
            self.leave_and_come_back: 0.3,
            self.start_anew: 0.1,
        }
        (act,) = self.dice.choices(list(acts), list(acts.values()))
        act()
        self.check()

    def start_anew(self) -> None:
        """End all processes, and start a new driver from the marks."""
        for hand in self.hands:
            self.doubt[hand.strand] = self.ends[hand.strand.where]
        self.hands, self.said, self.unheard = [], [], []
        self.last_words: list[tuple[Strand, Mark]] = []
        self.book = Book(number=self.dice.getrandbits(60))
        self.book.see_ends(self.ends)
        self.seen: dict[Strand, int] = {}
        for strand in STRANDS:
            self.enter(strand)

    def enter(self, strand: Strand) -> None:
        mark = self.marks.get(strand, Mark(0, 0))
        if mark.until >= OPEN:
            self.doubt[strand] = self.ends[strand.where]
        self.book.enter(strand, mark)
        self.seen[strand] = mark.at

    def leave_and_come_back(self) -> None:
        """Leave and return, like a lease whose work has all ended; its reports arrive later."""
        name = self.dice.choice(list(DESTINATIONS))
        if any(hand.strand.destination == name for hand in self.hands):
            return
        self.book.leave(name)
        assert not self.book.strands(name)
        self.unheard = [each for each in self.unheard if each[0].destination != name]
        self.book.see_ends(self.ends)
        for where in PLACES:
            self.enter(Strand(name, where))

    def events_come(self) -> None:
        self.ends[self.dice.choice(PLACES)] += self.dice.choice(COUNTS)

    def look(self) -> None:
        where = self.dice.choice(PLACES)
        self.book.see_ends({where: self.ends[where]}, as_of_s=self.now_s)

    def plan(self) -> None:
        events_max, rest_s = self.dice.choice((1, 3, 500)), self.dice.choice((0.0, 0.0, 3.0))
        refused = {kind for kind in {*JobKind} - {JobKind.ALONE} if self.dice.random() < 0.2}
        self.now_s += 1.0
        lanes = {
            name: Lane(to, self.dice.choice(_KINDS), events_max, rest_s)
            for name, to in DESTINATIONS.items()
            if self.dice.random() < 0.9
        }
        for name in DESTINATIONS:
            is_following = name in lanes and lanes[name].kind is JobKind.FOLLOWING
            self.book.follow(name, is_following=is_following)
        jobs = self.book.plan(lanes.get, Refusing(refused=refused), now_s=self.now_s)
        for job in jobs:
            assert job.kind not in refused
            self.check_tasks(job)
            for unit in job.units:
                for name, span in unit.spans.items():
                    self.check_size(span, events_max)
                    assert span.end is not None or lanes[name].kind is JobKind.FOLLOWING
                    self.take_in_hand(Strand(name, unit.where), span)

    def check_size(self, span: Span, events_max: int) -> None:
        if span.maybe_sent > span.begin:
            assert span.end is not None
            assert span.end == span.maybe_sent or (span.end - span.begin) % 500 == 0
        assert span.end is None or span.end - span.begin <= max(events_max, 500)

    def check_tasks(self, job: Job) -> None:
        assert job.tasks
        for task in job.tasks:
            assert task
            for where in PLACES:
                units = sorted((unit for unit in task if unit.where == where), key=_begin_of)
                for one, other in pairwise(units):
                    assert one.end is not None
                    assert other.begin - one.end > 2_000, "spans that are near are read twice"

    def take_in_hand(self, strand: Strand, span: Span) -> None:
        end = self.ends[strand.where]
        for hand in self.hands:
            # The late mark of a cut span may already have ruled out its repeats.
            is_apart = hand.strand != strand or span.begin >= (hand.span.end or OPEN)
            assert is_apart, "an offset is in two hands"
        assert span.begin <= self.stored[strand], "events were skipped"
        assert self.sent[strand] <= max(span.begin, span.maybe_sent), "a repeat is not labelled"
        assert span.maybe_sent <= max(span.begin, self.doubt[strand]), (
            "an event that nobody sent counts as a repeat"
        )
        if span.end is not None:
            assert span.begin < span.end <= end
        if span.maybe_sent > span.begin:
            assert span.end is not None
            assert span.end <= span.maybe_sent, "a repeat must form its former batches"
        # The mark is written before anything is sent, and acknowledged.
        self.write(strand, self.book.mark(strand))
        assert self.marks[strand].at == span.begin
        assert self.marks[strand].until >= (OPEN if span.end is None else span.end)
        self.hands.append(Hand(strand, span, span.begin, span.begin))

    def write(self, strand: Strand, mark: Mark) -> None:
        self.marks[strand] = mark
        self.unheard.append((strand, mark))

    def repeat_a_last_word(self) -> None:
        """Let a worker that was frozen report an old span as done."""
        if self.last_words:
            strand, mark = self.dice.choice(self.last_words)
            self.unheard.append((strand, mark))

    def store(self, hand: Hand, upto: int, *, is_last: bool = False) -> None:
        """Store outcomes, then the mark, as task.py does."""
        hand.sent = max(hand.sent, upto)
        self.sent[hand.strand] = max(self.sent[hand.strand], hand.sent)
        if upto > hand.stored or (is_last and hand.span.end is None and upto > hand.span.begin):
            hand.stored = upto
            self.stored[hand.strand] = max(self.stored[hand.strand], upto)
            until = OPEN if hand.span.end is None and not is_last else hand.span.end or upto
            self.write(hand.strand, Mark(upto, max(upto, until, hand.span.maybe_sent)))

    def reach_of(self, hand: Hand) -> int:
        return self.ends[hand.strand.where] if hand.span.end is None else hand.span.end

    def work(self) -> None:
        if not self.hands:
            return
        hand = self.dice.choice(self.hands)
        upto = min(self.reach_of(hand), hand.stored + self.dice.choice(COUNTS))
        self.store(hand, upto)
        hand.sent = max(hand.sent, min(self.reach_of(hand), upto + self.dice.randrange(4)))
        self.sent[hand.strand] = max(self.sent[hand.strand], hand.sent)

    def finish(self) -> None:
        if not self.hands:
            return
        hand = self.dice.choice(self.hands)
        # A span without an end is over after the events that its worker has started.
        self.store(hand, hand.sent if hand.span.end is None else hand.span.end, is_last=True)
        if hand.span.end is None and self.dice.random() < 0.5:
            # Other strands of its task are not done yet.
            self.write(hand.strand, Mark(hand.stored, OPEN, done=hand.span.number))
            self.last_words.append(self.unheard[-1])
        self.let_go(hand, hand.stored, is_cut=False)

    def fail(self) -> None:
        if not self.hands:
            return
        hand = self.dice.choice(self.hands)
        self.doubt[hand.strand] = max(self.doubt[hand.strand], self.reach_of(hand))
        self.let_go(hand, self.dice.choice((hand.stored, hand.span.begin)), is_cut=True)

    def let_go(self, hand: Hand, at: int, *, is_cut: bool) -> None:
        self.hands.remove(hand)
        self.said.append(StrandReport(hand.strand, hand.span, at, is_cut))

    def hear_marks(self) -> None:
        count = self.dice.randint(1, 9)
        for strand, mark in self.unheard[:count]:
            before = self.book.position(strand.destination, [strand.where])
            has_gone_on = self.book.went(strand, mark)
            after = self.book.position(strand.destination, [strand.where])
            assert has_gone_on or before == after
            assert not has_gone_on or before != after or mark.done is not None
        del self.unheard[:count]

    def hear_a_job(self) -> None:
        if not self.said:
            return
        said = self.said.pop(self.dice.randrange(len(self.said)))
        # The log may have grown since the cut; only the end found by the next look counts.
        if said.is_cut and said.span.end is None:
            self.doubt[said.strand] = OPEN
        self.hear(said, self.dice.choice((0.0, 2.0)))

    def hear(self, said: StrandReport, wait_s: float = 0.0) -> None:
        if said.is_cut:
            self.book.cut(said.strand, said.span, said.at, not_before_s=self.now_s + wait_s)
        else:
            self.book.ended(said.strand, said.span, said.at)

    def check(self) -> None:
        """Check that no position goes back, or beyond the stored events."""
        for strand in self.seen:
            at = self.book.position(strand.destination, [strand.where])[strand.where]
            assert self.seen[strand] <= at <= self.stored[strand]
            self.seen[strand] = at

    def come_to_rest(self) -> None:
        """Add no more events, and check that all are delivered in the end."""
        for hand in list(self.hands):
            self.let_go(hand, 0, is_cut=True)
            self.doubt[hand.strand] = OPEN
        for said in self.said:
            self.doubt[said.strand] = OPEN
            self.hear(said)
        lanes = {name: Lane(to, JobKind.SHARED, 10_000) for name, to in DESTINATIONS.items()}
        for name in DESTINATIONS:
            self.book.follow(name, is_following=False)
        self.book.see_ends(self.ends, as_of_s=self.now_s)
        while any(self.book.position(name, PLACES) != self.ends for name in DESTINATIONS):
            self.now_s += 10.0
            jobs = self.book.plan(lanes.get, Refusing(), now_s=self.now_s)
            assert jobs, "events are left, but no job is planned"
            for job in jobs:
                for unit in job.units:
                    for name, span in unit.spans.items():
                        strand = Strand(name, unit.where)
                        self.take_in_hand(strand, span)
                        hand = self.hands.pop()
                        self.store(hand, hand.span.end or 0)
                        self.book.ended(strand, span, hand.stored)
        for strand in STRANDS:
            assert self.stored[strand] == self.ends[strand.where]
            assert not self.book.is_under_way(strand)
            assert self.book.laggard(strand.destination) is None


@pytest.mark.parametrize("seed", range(8))
def test_a_book_keeps_its_promises(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.turn()
    world.come_to_rest()
