"""Runs the audit once: reads, judges, names lost events, publishes statements, remembers.

The order of reading makes the arithmetic exact: lanes' positions first, then the evidence, then the
log. So the run reads the outcome of every event that a lane had passed.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import structlog

from observe.audit.evidence import Claim, unite
from observe.audit.findings import AuditFinding, LostSpan, World
from observe.audit.kafka import AuditKafka
from observe.audit.ledger import Ledger
from observe.audit.memory import Memory
from observe.audit.minutes import DEAD as IN_DEAD
from observe.audit.minutes import PASSED, WRITTEN, Rules
from observe.audit.signing import Signer
from observe.audit.spark_job import AuditReads
from observe.audit.spark_tasks import LEDGER, RECEIPT, LoggedRun, MinuteRoots
from observe.audit.statements import Key, Naming, Publish, Stating
from observe.audit.status import Minutes, is_news
from observe.audit.stored_books import CLOSED_KEPT_MS
from shared.event.record import KafkaPartition, Position, Ranges
from shared.event.times import DAY_MS
from shared.event.topics import ACKED, DEAD, RECEIPTS, RETRIER, retry_topics
from shared.proof.intervals import Offsets
from shared.proof.overview import MinuteBooks, Missing, Stage
from shared.retry.schedule import RetrySchedule

log = structlog.get_logger()

# A destination and a minute; None is for events with implausible times.
BooksKey = tuple[str, int | None]
# Takes a Kafka partition, an offset and the consecutive ids from that offset on.
Hear = Callable[[KafkaPartition, int, Sequence[str]], object]
_TIERS = retry_topics(tier.name for tier in RetrySchedule().tiers)
# The maximum number of events to look up: from the time before the ledger began, and in one run.
# Both include events that pipelines and restores write.
_BACK_MAX = 100_000
_LOOK_UP_MAX = 200_000
# A statement needs all ids of its minute in memory for a moment, 200 bytes each. One run covers at
# most this many events, or a single larger minute.
_STATED_EVENTS_MAX = 2_000_000
# The maximum number of lost ids to list: for one minute, and for all minutes together (250 bytes
# each). Counts are always complete.
MISSING_MAX = 1_000
_LISTED_MAX = 100_000


def nobody_hears(_where: KafkaPartition, _first: int, _ids: Sequence[str]) -> None:
    """Ignore the ids; used where there is no index."""


@dataclass(frozen=True, slots=True)
class AuditOutcome:
    """The findings of one run."""

    minutes: Minutes
    changed: tuple[MinuteBooks, ...]
    problem: str = ""
    # Whether minutes were left for the next run.
    is_behind: bool = False


@dataclass(slots=True, kw_only=True)
class Audit:
    """Runs over the same memory."""

    job: AuditReads
    kafka: AuditKafka
    memory: Memory
    signer: Signer
    publish: Publish
    rules: Rules
    now_ms: Callable[[], int]
    # Gets the events that only the log names.
    hear: Hear = nobody_hears
    _logs: deque[tuple[int, Ranges]] = field(default_factory=deque)
    _missing: dict[BooksKey, tuple[Missing, ...]] = field(default_factory=dict)
    # The losses that `_missing` lists.
    _listed: dict[BooksKey, tuple[LostSpan, ...]] = field(default_factory=dict)
    _shown: dict[BooksKey, MinuteBooks] = field(default_factory=dict)
    # Minutes with ids that no source has any more, and their number of events when that was found.
    _nameless: dict[Key, int] = field(default_factory=dict)

    async def run(
        self,
        destinations: Mapping[str, Sequence[str]],
        *,
        late: frozenset[str] = frozenset(),
        derived: frozenset[str] = frozenset(),
        archived: frozenset[str] = frozenset(),
    ) -> AuditOutcome:
        """Read the new records, and judge every open minute of these destinations, by topic.

        `derived`: the topics that pipelines write to; `archived`: destinations that read archives.
        """
        now_ms = self.now_ms()
        books = self.memory.books
        stating = Stating(self.memory, self.signer, self.rules, self.publish)
        lanes = [
            RETRIER,
            *(destination_id for ids in destinations.values() for destination_id in ids),
        ]
        positions = {lane: await self.kafka.position(lane) for lane in lanes}
        ranges, problem = await self._ranges(positions[RETRIER])
        evidence = await asyncio.to_thread(self.job.gather, ranges)
        spans = await self.kafka.spans(list(destinations))
        world = World(destinations, positions, spans, now_ms, late, derived, archived=archived)
        books.meet(world, evidence)
        books.take(evidence)
        world, logged, absent = await self._look_up(world)
        naming = Naming(self.job, self.memory, spans)
        stated, left = self._stated_now(stating.to_name(world))
        named, misplaced = await naming.of_minutes(stated)
        if misplaced:
            # In place of the misplaced events the log has others, perhaps of other minutes.
            stated, left = self._stated_now({*stated, *stating.to_name(world)})
            named, _ = await naming.of_minutes(stated)
        for key in stated:
            if key not in named.roots:
                self._nameless[key] = books.acked(*key)
        findings = books.judge(world, self.rules, absent, uncompared=left)
        news = [each for each in findings if each.losses != self._listed.get(each.books.key, ())]
        self._list_missing(news, await naming.of_places(self._to_list(news)), logged)
        shown = self._show(findings, now_ms)
        changed = tuple(minute for minute in shown if self._shown.get(minute.key) != minute)
        left |= await stating.state(findings, named, world)
        self._shown = {minute.key: minute for minute in shown}
        for kind, parts in ranges.items():
            for (topic, partition), (_, end) in parts.items():
                self.memory.read[kind, topic, partition] = end
        self._note_unreadable(evidence.unreadable, now_ms)
        books.close(findings, world, self.rules, uncompared=left)
        self._forget(now_ms - CLOSED_KEPT_MS)
        by_destination: dict[str, list[MinuteBooks]] = {}
        for minute in sorted(shown, key=lambda books: -(books.minute_ms or 0)):
            if is_news(minute, now_ms):
                by_destination.setdefault(minute.destination_id, []).append(minute)
        return AuditOutcome(by_destination, changed, problem, is_behind=bool(left))

    def _note_unreadable(self, counts: Mapping[str, int], now_ms: int) -> None:
        """Log unreadable records and remember them for a day."""
        if counts:
            log.warning("audit.unreadable", **counts)
        kept = [noted for noted in self.memory.unreadable if noted[0] > now_ms - DAY_MS]
        self.memory.unreadable = [
            *kept, *((now_ms, kind, count) for kind, count in counts.items())
        ]  # fmt: skip

    def _forget(self, before_ms: int) -> None:
        """Drop notes about minutes that are closed and get no more events."""
        memory = self.memory
        noted: dict[Key, Any]
        for noted in (memory.stated, self._nameless):
            for topic, minute_ms in [key for key in noted if 0 <= key[1] < before_ms]:
                is_open = minute_ms in memory.books.ledgers.get(topic, _NO_LEDGER)
                if not is_open and (topic, minute_ms) not in memory.books.closed:
                    del noted[topic, minute_ms]
        for listed in (self._missing, self._listed):
            for key in [key for key in listed if key not in self._shown]:
                del listed[key]

    async def _ranges(
        self, retrier: Position
    ) -> tuple[dict[str, dict[KafkaPartition, tuple[int, int]]], str]:
        """Return the new ranges by kind, and why some of them can no longer be read."""
        ranges: dict[str, dict[KafkaPartition, tuple[int, int]]] = {}
        problem = ""
        for kind, topics in (
            (LEDGER, [ACKED]),
            (RECEIPT, [RECEIPTS]),
            (WRITTEN, _TIERS),
            (IN_DEAD, [DEAD]),
        ):
            for where, (start, end) in (await self.kafka.spans(topics)).items():
                at = self.memory.read.get((kind, *where), 0)
                if 0 < at < start:
                    problem = f"{where[0]} was deleted up to {start} before it was read from {at}"
                if max(at, start) < end:
                    ranges.setdefault(kind, {})[where] = (max(at, start), end)
        for where, end in retrier.items():
            at = self.memory.read.get((PASSED, *where), 0)
            written = ranges.get(WRITTEN, {}).get(where, (0, 0))[1]
            passed = min(end, max(written, self.memory.read.get((WRITTEN, *where), 0)))
            if at < passed:
                ranges.setdefault(PASSED, {})[where] = (at, passed)
        return ranges, problem

    async def _look_up(
        self, world: World
    ) -> tuple[World, list[LoggedRun], dict[KafkaPartition, Offsets]]:
        """Look up in the log the events that the ledger does not name, and those that seem lost.

        The returned world has the time of that lookup, which is 0 right after a start.
        """
        books = self.memory.books
        self._logs.append((world.now_ms, world.log))
        ripe_ms = world.now_ms - self.rules.ledger_grace_ms
        while len(self._logs) > 1 and self._logs[1][0] <= ripe_ms:
            self._logs.popleft()
        at_ms, log_then = self._logs[0]
        is_ripe = at_ms <= ripe_ms
        ripe = log_then if is_ripe else {}
        begins = await self.kafka.restored()
        begins |= {where: 0 for where in ripe if where[0] in world.derived}
        unclaimed = books.unclaimed(ripe, back_max=_BACK_MAX, begins=begins)
        holes, unasked = _shared_out(unclaimed, _LOOK_UP_MAX)
        unasked |= {where.topic for where in world.log.keys() - log_then.keys()}
        suspects = books.to_look_up(world, self.rules)
        wanted: dict[KafkaPartition, Offsets] = {}
        unite(wanted, holes)
        unite(wanted, suspects)
        logged: list[LoggedRun] = []
        if wanted:
            logged = await asyncio.to_thread(self.job.look_up, wanted, world.log)
        self._claim_from_log(holes, logged)
        there: dict[KafkaPartition, Offsets] = {}
        for run in logged:
            there.setdefault(run.where, Offsets()).add(run.first, run.end)
        absent = {
            where: offsets.minus(there.get(where, Offsets())) for where, offsets in suspects.items()
        }
        asked_ms = at_ms if is_ripe else 0
        known = replace(world, asked_ms=asked_ms, unasked=frozenset(unasked))
        return known, logged, absent

    def _claim_from_log(
        self, holes: Mapping[KafkaPartition, Offsets], logged: Iterable[LoggedRun]
    ) -> None:
        """Enter events that only the log has; offsets without a record are no events."""
        for run in logged:
            topic, partition = run.where
            for low, high in holes.get(run.where, Offsets()).within(run.first, run.end):
                self.hear(run.where, low, run.ids[low - run.first : high - run.first])
                claim = Claim(
                    topic, partition, run.minute, low, high, run.accepted_at_ms, (-1, 0, 0),
                    run.is_derived,
                )  # fmt: skip
                self.memory.books.claim(claim, is_from_log=True)
        for (topic, partition), offsets in holes.items():
            ledger = self.memory.books.ledgers.setdefault(topic, Ledger())
            unite(ledger.claimed, {partition: offsets})
            unite(ledger.from_log, {partition: offsets})

    def _stated_now(self, to_state: Iterable[Key]) -> tuple[list[Key], frozenset[Key]]:
        """Return the minutes whose ids this run reads, and those left for the next run."""
        now: list[Key] = []
        left: set[Key] = set()
        event_count = 0
        for key in to_state:
            count = self.memory.books.acked(*key)
            if self._nameless.get(key) == count and not self._is_uncompared(key):
                continue
            if now and event_count + count > _STATED_EVENTS_MAX:
                left.add(key)
                continue
            event_count += count
            now.append(key)
        return now, frozenset(left)

    def _is_uncompared(self, key: Key) -> bool:
        ledger = self.memory.books.ledgers[key[0]]
        return bool(ledger.only_in_rows(ledger.look(key[1])))

    def _to_list(self, news: Iterable[AuditFinding]) -> dict[KafkaPartition, Offsets]:
        """Return the offsets of those newly lost events that will be listed."""
        offsets: dict[KafkaPartition, Offsets] = {}
        room = _LISTED_MAX - sum(map(len, self._missing.values()))
        for finding in news:
            losses = [*_singly(finding.losses, min(MISSING_MAX, room))]
            self._missing[finding.books.key] = tuple(losses)
            room -= len(losses)
            for loss in losses:
                where = KafkaPartition(loss.topic, loss.partition)
                offsets.setdefault(where, Offsets()).add(loss.offset, loss.offset + 1)
        return offsets

    def _list_missing(
        self, news: Collection[AuditFinding], named: MinuteRoots, logged: Iterable[LoggedRun]
    ) -> None:
        in_log = {
            (*run.where, run.first + index): event_id
            for run in (logged if news else ())
            for index, event_id in enumerate(run.ids)
        }
        for finding in news:
            key = finding.books.key
            if not finding.losses:
                del self._missing[key], self._listed[key]
                continue
            seen: Counter[tuple[str, int, int]] = Counter()
            listed = []
            for loss in self._missing[key]:
                place = (loss.topic, loss.partition, loss.offset)
                ids = named.ids.get(place, [])
                if loss.stage not in _PLACES and self._is_from_log(place):
                    # Rows of the ledger, if there are any, are about another event.
                    ids = []
                # If Kafka gave an offset twice, the earlier event is gone.
                at = seen[place] if loss.stage in _PLACES and len(ids) > 1 else -1
                seen[place] += 1
                event_id = ids[at] if ids else in_log.get(place, "")
                listed.append(replace(loss, event_id=event_id))
            self._missing[key] = tuple(listed)
            self._listed[key] = finding.losses

    def _is_from_log(self, place: tuple[str, int, int]) -> bool:
        topic, partition, offset = place
        ledger = self.memory.books.ledgers.get(topic, _NO_LEDGER)
        return offset in ledger.from_log.get(partition, Offsets())

    def _show(self, findings: Sequence[AuditFinding], now_ms: int) -> list[MinuteBooks]:
        """Return books with their missing events; include closed minutes that were shown lately."""
        shown = [
            replace(finding.books, missing=self._missing.get(finding.books.key, ()))
            for finding in findings
        ]
        open_now = {minute.key for minute in shown}
        shown += [
            minute
            for key, minute in self._shown.items()
            if key not in open_now and minute.minute_ms and is_news(minute, now_ms)
        ]
        return shown


_NO_LEDGER = Ledger()
# For an event lost at one of these stages, another event may have its offset.
_PLACES = frozenset({Stage.QUEUE, Stage.GATEWAY})


def _shared_out(
    unclaimed: Iterable[tuple[KafkaPartition, int, int]], count_max: int
) -> tuple[dict[KafkaPartition, Offsets], set[str]]:
    """Return the offsets to look up now, and the topics with offsets that are left for later.

    Topics with few offsets come first, so that one stream with many delays no other.
    """
    by_topic: dict[str, list[tuple[KafkaPartition, int, int]]] = {}
    for where, low, end in unclaimed:
        by_topic.setdefault(where.topic, []).append((where, low, end))
    parts = sorted(by_topic.items(), key=lambda item: sum(end - low for _, low, end in item[1]))
    holes: dict[KafkaPartition, Offsets] = {}
    left: set[str] = set()
    for index, (topic, spans) in enumerate(parts):
        room = count_max // (len(parts) - index)
        for where, low, end in spans:
            high = min(end, low + room)
            if low < high:
                holes.setdefault(where, Offsets()).add(low, high)
                room -= high - low
                count_max -= high - low
            if high < end:
                left.add(topic)
    return holes, left


def _singly(losses: Iterable[LostSpan], at_most: int) -> Iterable[Missing]:
    return islice((loss for span in losses for loss in span.events()), max(at_most, 0))
