"""Keeps what the audit knows from run to run: open minutes judged, closed ones forgotten.

Evidence goes in, findings come out. What is kept follows what is open, not what has ever been.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from msgspec import Struct

from observe.audit.evidence import Evidence, add_counts, unite
from observe.audit.findings import (
    NEVER,
    AuditFinding,
    LostSpan,
    ToJudge,
    World,
    books_of,
    by_minute,
    is_ended,
    with_more,
)
from observe.audit.minutes import (
    Account,
    Closed,
    Ledger,
    LedgerMinute,
    Outcomes,
    Rules,
    account_for,
    confirmed,
    enter_outcomes,
    late_ones,
    number_of,
    remember_suspects,
)
from shared.event.record import KafkaPartition, Position, Ranges
from shared.event.times import DAY_MS, HOUR_MS, MINUTE_MS
from shared.event.topics import pipeline_of, topic_of
from shared.proof.acked import WILD
from shared.proof.intervals import Offsets
from shared.proof.overview import MinuteBooks, MinuteState, Node, Unsettled

# So long a minute stays known after it was closed, so that a late event finds its books: as long
# as late events are counted in their minute at all, and an hour. And so long one with a loss stays
# open after that was told, as what was lost may still turn up. One that is not settled stays open
# for ever: what is not known is not forgotten.
CLOSED_KEPT_MS = DAY_MS + HOUR_MS


class AuditBooks(Struct, forbid_unknown_fields=True):
    ledgers: dict[str, Ledger] = {}
    outcomes: dict[tuple[str, KafkaPartition], Outcomes] = {}
    closed: dict[tuple[str, int], Closed] = {}
    # Offsets of closed minutes, of all destinations alike.
    done: dict[KafkaPartition, Offsets] = {}
    first_outcome: dict[tuple[str, KafkaPartition], int] = {}
    # By destination, as it was judged last.
    unsettled: dict[str, Unsettled] = {}
    # By pipeline's lane and minute: how many events it did not pass on, by outcome.
    not_passed: dict[tuple[str, int], dict[str, int]] = {}

    def take(self, evidence: Evidence) -> None:
        """Enter a run's evidence."""
        for claim in evidence.claims:
            taken = self.ledgers.setdefault(claim.topic, Ledger()).enter(claim)
            if taken:
                self._begin_anew(KafkaPartition(claim.topic, claim.partition), taken)
        enter_outcomes(self.outcomes, evidence, self.done)
        add_counts(self.not_passed, evidence.not_passed)
        for (destination, _, topic, partition), offsets in evidence.outcomes.items():
            key = (destination, KafkaPartition(topic, partition))
            first = next(iter(offsets), (0, 0))[0]
            self.first_outcome[key] = min(first, self.first_outcome.get(key, first))

    def _begin_anew(self, where: KafkaPartition, taken: Offsets) -> None:
        """Offsets that are other events now are not settled for what those before were."""
        for known in [known for (_, at), known in self.outcomes.items() if at == where]:
            known.done = known.done.minus(taken)
        self.done[where] = self.done.get(where, Offsets()).minus(taken)

    def unclaimed(
        self, log: Ranges, *, back_max: int, begins: Position
    ) -> Iterator[tuple[KafkaPartition, int, int]]:
        """What the log has and nobody claimed: its gateway died, a pipeline or a restore wrote it.

        Before the first claim and what `begins` is history, left out if longer than `back_max`.
        """
        for where, (start, end) in log.items():
            ledger = self.ledgers.get(where[0], _NO_LEDGER)
            first = ledger.first_claimed(where[1], end)
            begin = min(first, begins.get(where, first)) if first - start > back_max else start
            claimed = ledger.claimed.get(where[1], Offsets())
            for low, high in Offsets.of([(max(start, begin), end)]).minus(claimed):
                yield KafkaPartition(*where), low, high

    def to_look_up(self, world: World, rules: Rules) -> dict[KafkaPartition, Offsets]:
        """Offsets that a lane has passed and left without an outcome; the log may not have them."""
        passed: dict[KafkaPartition, Offsets] = {}
        for one in self._to_judge(world):
            if not one.is_untouched:
                for where, _, sure in self._accounts(one, world, rules):
                    if Node.DELIVERY in sure:
                        unite(passed, {where: sure[Node.DELIVERY]})
        return passed

    def judge(
        self, world: World, rules: Rules, absent: Mapping[KafkaPartition, Offsets]
    ) -> list[AuditFinding]:
        """Every open minute of every destination; `absent` is what the log has not, looked up.

        Those that nobody has come to, and of which that was told for an hour, are only counted.
        """
        findings: list[AuditFinding] = []
        suspects: dict[tuple[str, KafkaPartition], dict[Node, Offsets]] = {}
        unsettled: dict[str, Unsettled] = {}
        told_ms = world.now_ms - rules.settle_ms - rules.blind_ms - HOUR_MS
        for one in self._to_judge(world):
            known = unsettled.get(one.destination, _ALL_SETTLED)
            is_old = one.minute_ms >= 0 and one.minute.quiet_since_ms(one.minute_ms) < told_ms
            if is_old and one.is_untouched and known.minute_count:
                unsettled[one.destination] = with_more(known, one.minute_count)
                continue
            finding = self._finding(one, world, rules, absent, suspects)
            books = finding.books
            if books.state is MinuteState.CANNOT_TELL:
                if not known.minute_count:
                    known = Unsettled(0, books.minute_ms, books.problem)
                unsettled[one.destination] = with_more(known, one.minute_count)
            findings.append(finding)
        for key, outcomes in self.outcomes.items():
            remember_suspects(outcomes, suspects.get(key, {}), rules, now_ms=world.now_ms)
        self.unsettled = unsettled
        return findings

    def _to_judge(self, world: World) -> Iterator[ToJudge]:
        """What is open, by destination and oldest first."""
        for topic, ledger in self.ledgers.items():
            numbers = Offsets.of((n, n + 1) for n in map(number_of, ledger.times_ms()))
            looked: dict[int, LedgerMinute] = {}
            for destination in world.destinations.get(topic, ()):
                reached = self._reached(topic, ledger, destination, world)
                settled = ledger.settled.get(destination, Offsets())
                # As long as it stands still nothing of what is packed has to be looked at.
                is_still = all(low >= reached[where] for where, low in ledger.lowest.items())
                if is_still and ledger.packed:
                    oldest_ms = min(ledger.packed)
                    oldest, count = ledger.look(oldest_ms), len(ledger.packed)
                    yield ToJudge(topic, oldest_ms, oldest, destination, True, count)
                for low, high in numbers.minus(settled):
                    for number in range(low, high):
                        minute_ms = number * MINUTE_MS if number >= 0 else WILD
                        if is_still and minute_ms in ledger.packed:
                            continue
                        minute = looked.get(minute_ms) or ledger.look(minute_ms)
                        looked[minute_ms] = minute
                        is_untouched = not minute.overwritten and all(
                            offsets.start >= reached[partition]
                            for partition, offsets in minute.acked.items()
                        )
                        if not is_untouched:
                            minute = looked[minute_ms] = ledger.unpack(minute_ms)
                        yield ToJudge(topic, minute_ms, minute, destination, is_untouched)

    def _reached(
        self, topic: str, ledger: Ledger, destination: str, world: World
    ) -> dict[int, int]:
        """Of each Kafka partition from where on nothing is known but that it is in the log."""
        reached = {}
        for partition, claimed in ledger.claimed.items():
            where = KafkaPartition(topic, partition)
            known = self.outcomes.get((destination, where), Outcomes())
            first, end = world.log.get(where, (0, 0))
            position = world.positions.get(destination, {}).get(where, 0)
            reached[partition] = max(first, position, known.end)
            begun = self.first_outcome.get((destination, where), NEVER)
            if claimed.end > end or (destination in world.late and begun > reached[partition]):
                reached[partition] = NEVER
        return reached

    def _finding(
        self,
        one: ToJudge,
        world: World,
        rules: Rules,
        absent: Mapping[KafkaPartition, Offsets],
        suspects: dict[tuple[str, KafkaPartition], dict[Node, Offsets]],
    ) -> AuditFinding:
        topic, minute_ms, minute, destination, is_untouched, _ = one
        is_asked = world.is_asked(topic, minute_ms, minute, rules)
        delivered, dead = self._ended(one)
        sums = Counter(acked=delivered + dead, delivered=delivered, dead=dead)
        if is_untouched:
            sums["acked"] += minute.count
            sums["pending"] += minute.count
            books = books_of(one, sums, (), rules, world.now_ms, is_asked=is_asked)
            return AuditFinding(self._told_apart(books))
        losses = [LostSpan(Node.KAFKA, topic, *span) for span in minute.overwritten]
        sums["acked"] += sum(end - first for _, first, end in minute.overwritten)
        for where, account, sure in self._accounts(one, world, rules):
            passer = Node.DELIVERY if pipeline_of(one.destination) is None else Node.PIPELINE
            gone = sure.get(Node.DELIVERY, Offsets()).both(absent.get(where, Offsets()))
            if gone:
                sure[Node.DELIVERY] = sure[Node.DELIVERY].minus(gone)
                sure[Node.KAFKA] = sure.get(Node.KAFKA, Offsets()).union(gone)
            losses += [
                LostSpan(passer if node is Node.DELIVERY else node, *where, *span)
                for node, offsets in sure.items()
                for span in offsets
            ]
            unite(suspects.setdefault((destination, where), {}), account.suspects)
            sums["acked"] += account.balance.acked
            sums["delivered"] += account.balance.delivered
            sums["waiting"] += account.balance.waiting - _count(sure, Node.RETRY_TIER, Node.RETRIER)
            sums["dead"] += account.balance.dead - _count(sure, Node.DEAD_LETTERS)
            sums["pending"] += account.balance.pending
            sums["suspected"] += _count(account.suspects, *Node) - _count(sure, *Node)
        books = books_of(one, sums, losses, rules, world.now_ms, is_asked=is_asked)
        return AuditFinding(self._told_apart(books), tuple(losses))

    def _told_apart(self, books: MinuteBooks) -> MinuteBooks:
        """With what a pipeline did not pass on."""
        minute_ms = WILD if books.minute_ms is None else books.minute_ms
        counts = self.not_passed.get((books.destination_id, minute_ms))
        return replace(books, not_passed=dict(counts)) if counts else books

    def _accounts(
        self, one: ToJudge, world: World, rules: Rules
    ) -> Iterator[tuple[KafkaPartition, Account, dict[Node, Offsets]]]:
        """What became of a minute's events in each Kafka partition, and what is surely lost."""
        for partition, offsets in one.minute.acked.items():
            where = KafkaPartition(one.topic, partition)
            key = (one.destination, where)
            known = self.outcomes.setdefault(key, Outcomes())
            acked = offsets.minus(known.done)
            if one.destination in world.late:
                acked = acked.from_offset(self.first_outcome.get(key, acked.end))
            position = world.positions.get(one.destination, {}).get(where)
            log = world.log_of(one.destination, where)
            account = account_for(acked, known, position=position, log=log)
            yield where, account, confirmed(known, account.suspects, rules, now_ms=world.now_ms)

    def _ended(self, one: ToJudge) -> tuple[int, int]:
        """Delivered and dead of before the minute was opened again; of all, if it is settled."""
        delivered, dead = self.closed.get((one.topic, one.minute_ms), _NOTHING).outcomes.get(
            one.destination, (0, 0)
        )
        nothing = (0, 0)
        if number_of(one.minute_ms) in self.ledgers[one.topic].settled.get(one.destination, ()):
            nothing = (one.minute.count, 0)
        own = one.minute.ended.get(one.destination, nothing)
        return delivered + own[0], dead + own[1]

    def acked(self, topic: str, minute_ms: int) -> int:
        """How many events an open minute has, with those of before it was closed."""
        before = self.closed.get((topic, minute_ms), Closed())
        return self.ledgers[topic].look(minute_ms).count + before.acked

    def derived(self, topic: str, minute_ms: int) -> int:
        """How many of these pipelines wrote."""
        before = self.closed.get((topic, minute_ms), _NOTHING).derived
        return self.ledgers[topic].look(minute_ms).derived + before

    def in_log(self, topic: str, minute_ms: int) -> dict[KafkaPartition, Offsets]:
        """Where those of these are that only the log names."""
        ledger = self.ledgers[topic]
        before = self.closed.get((topic, minute_ms), _NOTHING).in_log
        there: dict[KafkaPartition, Offsets] = {}
        for part in (before, ledger.only_in_log(ledger.look(minute_ms))):
            unite(there, {KafkaPartition(topic, number): spans for number, spans in part.items()})
        return there

    def of_minute(
        self, topic: str, minute_ms: int, judged: Iterable[MinuteBooks], destinations: Iterable[str]
    ) -> list[MinuteBooks]:
        """What was judged now, and the books of those destinations that it was settled for."""
        known = {books.destination_id: books for books in judged}
        ledger = self.ledgers[topic]
        for destination in destinations:
            if number_of(minute_ms) in ledger.settled.get(destination, ()):
                one = ToJudge(topic, minute_ms, ledger.look(minute_ms), destination, False)
                delivered, dead = self._ended(one)
                sums = Counter(acked=delivered + dead, delivered=delivered, dead=dead)
                books = books_of(one, sums, (), Rules(0, 0), NEVER, is_asked=True)
                known[destination] = self._told_apart(books)
        return [known[each] for each in destinations if each in known]

    def close(
        self,
        findings: Sequence[AuditFinding],
        world: World,
        rules: Rules,
        *,
        held: AbstractSet[tuple[str, int]] = frozenset(),
    ) -> None:
        """Forget the offsets of minutes of which nothing is open any more, and keep their counts.

        Where something is open for one destination, it is forgotten for those that it is settled
        for. Minutes that are `held` wait for their statement.
        """
        old_ms = world.now_ms - CLOSED_KEPT_MS
        for (topic, minute_ms), judged in by_minute(each.books for each in findings).items():
            ended = [books for books in judged if is_ended(books, old_ms)]
            if not ended or (topic, minute_ms) in held:
                continue
            wanted = world.destinations[topic]
            all_books = self.of_minute(topic, minute_ms, ended, wanted)
            if len(all_books) == len(wanted):
                self._close(topic, minute_ms, all_books, world.now_ms)
                continue
            for books in ended:
                if books.state is MinuteState.COMPLETE:
                    self._settle(topic, minute_ms, books)
        self._sweep(world, rules, held)
        # One that was opened again is made up of both parts for as long as it is open.
        keys = {*self.closed, *((topic_of(lane), at_ms) for lane, at_ms in self.not_passed)}
        known = {
            (topic, at_ms)
            for topic, at_ms in keys
            if at_ms < 0 or at_ms >= old_ms or at_ms in self.ledgers.get(topic, ())
        }
        known |= late_ones(self.closed, known, old_ms)
        self.closed = {key: closed for key, closed in self.closed.items() if key in known}
        self.not_passed = {
            (lane, minute_ms): counts
            for (lane, minute_ms), counts in self.not_passed.items()
            if (topic_of(lane), minute_ms) in known
        }

    def _sweep(self, world: World, rules: Rules, held: AbstractSet[tuple[str, int]]) -> None:
        """Close what nobody wants any more who has not all of it, and pack what is old."""
        told_ms = world.now_ms - rules.settle_ms - rules.blind_ms - HOUR_MS
        old_ms = min(told_ms, world.now_ms - CLOSED_KEPT_MS)
        for topic, ledger in self.ledgers.items():
            wanted = world.destinations.get(topic, ())
            settled = [ledger.settled.get(each, Offsets()) for each in wanted]
            for minute_ms in ledger.times_ms() if all(settled) else ():
                is_over = world.is_over(topic, minute_ms, ledger.look(minute_ms), rules)
                if is_over and all(number_of(minute_ms) in each for each in settled):
                    all_books = self.of_minute(topic, minute_ms, (), wanted)
                    self._close(topic, minute_ms, all_books, world.now_ms)
            for minute_ms, minute in list(ledger.minutes.items()):
                is_old = 0 <= minute_ms < old_ms and (topic, minute_ms) not in held
                if is_old and world.is_asked(topic, minute_ms, minute, rules):
                    ledger.pack(minute_ms)

    def _settle(self, topic: str, minute_ms: int, books: MinuteBooks) -> None:
        """Forget a minute's offsets for one destination."""
        ledger, destination = self.ledgers[topic], books.destination_id
        minute = ledger.unpack(minute_ms)
        before = self.closed.get((topic, minute_ms), _NOTHING).outcomes.get(destination, (0, 0))
        own = (books.delivered - before[0], books.dead - before[1])
        minute.ended[destination] = own
        if own == (minute.count, 0):
            # What is said of nearly all is said by saying nothing.
            del minute.ended[destination]
        number = number_of(minute_ms)
        ledger.settled.setdefault(destination, Offsets()).add(number, number + 1)
        for partition, offsets in minute.acked.items():
            known = self.outcomes[destination, KafkaPartition(topic, partition)]
            for span in offsets:
                known.done.add(*span)
            known.forget(offsets)

    def _close(self, topic: str, minute_ms: int, books: Iterable[MinuteBooks], at_ms: int) -> None:
        ledger = self.ledgers[topic]
        minute = ledger.unpack(minute_ms)
        del ledger.minutes[minute_ms]
        kept = self.closed.setdefault((topic, minute_ms), Closed())
        kept.acked, kept.at_ms = kept.acked + minute.count, at_ms
        for own in books:
            # The books of a reopened minute have those of before in them.
            kept.outcomes[own.destination_id] = (own.delivered, own.dead)
        number = number_of(minute_ms)
        for numbers in ledger.settled.values():
            numbers.discard(number, number + 1)
        unite(kept.ledger, minute.ledger)
        kept.derived += minute.derived
        unite(kept.in_log, ledger.only_in_log(minute))
        for partition, offsets in minute.acked.items():
            where = KafkaPartition(topic, partition)
            unite(self.done, {where: offsets})
            for (_, at), known in self.outcomes.items():
                if at == where:
                    known.forget(offsets)
                    known.done = known.done.minus(offsets)


_NOTHING = Closed()
_NO_LEDGER = Ledger()
_ALL_SETTLED = Unsettled()


def _count(sure: Mapping[Node, Offsets], *nodes: Node) -> int:
    return sum(len(sure.get(node, ())) for node in nodes)
