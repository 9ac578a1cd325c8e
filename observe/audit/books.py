"""Judges the audit's evidence: finds complete minutes and losses, and closes checked minutes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from observe.audit.evidence import unite
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
from observe.audit.ledger import Ledger, LedgerMinute, number_of
from observe.audit.minutes import (
    Account,
    Outcomes,
    Rules,
    account_for,
    confirmed,
    remember_suspects,
)
from observe.audit.stored_books import CLOSED_KEPT_MS, StoredBooks
from shared.event.record import KafkaPartition
from shared.event.times import HOUR_MS, MINUTE_MS
from shared.event.topics import pipeline_of
from shared.proof.acked import WILD
from shared.proof.intervals import Offsets
from shared.proof.overview import MinuteBooks, MinuteState, OverdueMinutes, Stage


class AuditBooks(StoredBooks, forbid_unknown_fields=True):
    """The stored facts, and the judgements that follow from them."""

    def to_look_up(self, world: World, rules: Rules) -> dict[KafkaPartition, Offsets]:
        """Return offsets that a lane has passed but that have no outcome; the log may lack them."""
        passed: dict[KafkaPartition, Offsets] = {}
        for one in self._to_judge(world):
            if not one.is_untouched:
                for where, _, sure in self._accounts(one, world, rules):
                    if Stage.DELIVERY in sure:
                        unite(passed, {where: sure[Stage.DELIVERY]})
        return passed

    def judge(
        self,
        world: World,
        rules: Rules,
        absent: Mapping[KafkaPartition, Offsets],
        *,
        uncompared: AbstractSet[tuple[str, int]] = frozenset(),
    ) -> list[AuditFinding]:
        """Judge every open minute of every destination; the log lacks the offsets in `absent`.

        Minutes in `uncompared` are not compared with the log yet, so they are not complete. A
        minute that its lane has not reached is only counted once it has been reported for an hour.
        """
        findings: list[AuditFinding] = []
        suspects: dict[tuple[str, KafkaPartition], dict[Stage, Offsets]] = {}
        overdue: dict[str, OverdueMinutes] = {}
        told_ms = world.now_ms - rules.check_after_ms - rules.overdue_ms - HOUR_MS
        for one in self._to_judge(world):
            known = overdue.get(one.destination, _NONE_OVERDUE)
            is_old = one.minute_ms >= 0 and one.minute.quiet_since_ms(one.minute_ms) < told_ms
            if is_old and one.is_untouched and known.minute_count:
                overdue[one.destination] = with_more(known, one.minute_count)
                continue
            is_asked = (one.topic, one.minute_ms) not in uncompared and world.is_asked(
                one.topic, one.minute_ms, one.minute, rules
            )
            finding = self._finding(one, world, rules, absent, suspects, is_asked=is_asked)
            books = finding.books
            if books.state is MinuteState.CANNOT_TELL:
                if not known.minute_count:
                    known = OverdueMinutes(0, books.minute_ms, books.problem)
                overdue[one.destination] = with_more(known, one.minute_count)
            findings.append(finding)
        for key, outcomes in self.outcomes.items():
            remember_suspects(outcomes, suspects.get(key, {}), rules, now_ms=world.now_ms)
        self.overdue = overdue
        return findings

    def _to_judge(self, world: World) -> Iterator[ToJudge]:
        """Yield the open minutes, by destination and oldest first."""
        for topic, ledger in self.ledgers.items():
            numbers = Offsets.of((n, n + 1) for n in map(number_of, ledger.times_ms()))
            looked: dict[int, LedgerMinute] = {}
            for destination in world.destinations.get(topic, ()):
                reached = self._reached(topic, ledger, destination, world)
                checked = ledger.checked.get(destination, Offsets())
                # While the lane has reached no packed minute, packed minutes stay packed.
                is_still = all(low >= reached[where] for where, low in ledger.lowest.items())
                if is_still and ledger.packed:
                    oldest_ms = min(ledger.packed)
                    oldest, count = ledger.look(oldest_ms), len(ledger.packed)
                    yield ToJudge(topic, oldest_ms, oldest, destination, True, count)
                for low, high in numbers.minus(checked):
                    for number in range(low, high):
                        minute_ms = number * MINUTE_MS if number >= 0 else WILD
                        if is_still and minute_ms in ledger.packed:
                            continue
                        minute = looked.get(minute_ms) or ledger.look(minute_ms)
                        looked[minute_ms] = minute
                        is_odd = minute.gone or minute.unplaced or destination in minute.ended
                        is_untouched = not is_odd and all(
                            offsets.start >= reached[partition]
                            for partition, offsets in minute.acked.items()
                        )
                        if not is_untouched:
                            minute = looked[minute_ms] = ledger.unpack(minute_ms)
                        yield ToJudge(topic, minute_ms, minute, destination, is_untouched)

    def _reached(
        self, topic: str, ledger: Ledger, destination: str, world: World
    ) -> dict[int, int]:
        """Return, by Kafka partition, the offset from which nothing but the log has events yet."""
        reached = {}
        for partition, claimed in ledger.claimed.items():
            where = KafkaPartition(topic, partition)
            known = self.outcomes.get((destination, where), Outcomes())
            first, end = world.log.get(where, (0, 0))
            position = world.positions.get(destination, {}).get(where, 0)
            reached[partition] = max(first, position, known.end)
            begun = self.begin_of(destination, where, world)
            if claimed.end > end or begun > reached[partition]:
                reached[partition] = NEVER
        return reached

    def _finding(
        self,
        one: ToJudge,
        world: World,
        rules: Rules,
        absent: Mapping[KafkaPartition, Offsets],
        suspects: dict[tuple[str, KafkaPartition], dict[Stage, Offsets]],
        *,
        is_asked: bool,
    ) -> AuditFinding:
        minute, destination, is_untouched = one.minute, one.destination, one.is_untouched
        delivered, dead = self._ended(one)
        sums = Counter(acked=delivered + dead, delivered=delivered, dead=dead)
        if is_untouched:
            sums["acked"] += minute.count
            sums["queued"] += minute.count
            books = books_of(one, sums, (), rules, world.now_ms, is_asked=is_asked)
            return AuditFinding(self._told_apart(books))
        losses = list(self._gone(one, world))
        sums["acked"] += sum(loss.end - loss.first for loss in losses)
        for where, account, sure in self._accounts(one, world, rules):
            passer = Stage.DELIVERY if pipeline_of(one.destination) is None else Stage.PIPELINE
            gone = sure.get(Stage.DELIVERY, Offsets()).both(absent.get(where, Offsets()))
            if gone:
                sure[Stage.DELIVERY] = sure[Stage.DELIVERY].minus(gone)
                sure[Stage.QUEUE] = sure.get(Stage.QUEUE, Offsets()).union(gone)
            losses += [
                LostSpan(passer if stage is Stage.DELIVERY else stage, *where, *span)
                for stage, offsets in sure.items()
                for span in offsets
            ]
            unite(suspects.setdefault((destination, where), {}), account.suspects)
            sums["acked"] += account.balance.acked
            sums["delivered"] += account.balance.delivered
            sums["waiting"] += account.balance.waiting - _count(
                sure, Stage.RETRY_TIER, Stage.RETRIER
            )
            sums["dead"] += account.balance.dead - _count(sure, Stage.DEAD_LETTERS)
            sums["queued"] += account.balance.queued
            sums["suspected"] += _count(account.suspects, *Stage) - _count(sure, *Stage)
        books = books_of(one, sums, losses, rules, world.now_ms, is_asked=is_asked)
        return AuditFinding(self._told_apart(books), tuple(losses))

    def _gone(self, one: ToJudge, world: World) -> Iterator[LostSpan]:
        """Yield the offsets that hold other events than the acknowledged ones."""
        minute = one.minute
        for stage, spans in ((Stage.QUEUE, minute.overwritten), (Stage.GATEWAY, minute.misplaced)):
            for partition, first, end in spans:
                where = KafkaPartition(one.topic, partition)
                low = max(first, self.begin_of(one.destination, where, world))
                if low < end:
                    yield LostSpan(stage, one.topic, partition, low, end)

    def _told_apart(self, books: MinuteBooks) -> MinuteBooks:
        """Add to the books the counts of events that a pipeline did not pass on."""
        minute_ms = WILD if books.minute_ms is None else books.minute_ms
        counts = self.not_passed.get((books.destination_id, minute_ms))
        return replace(books, not_passed=dict(counts)) if counts else books

    def _accounts(
        self, one: ToJudge, world: World, rules: Rules
    ) -> Iterator[tuple[KafkaPartition, Account, dict[Stage, Offsets]]]:
        """Yield the outcomes of a minute's events by Kafka partition, and the certain losses."""
        for partition, offsets in one.minute.acked.items():
            where = KafkaPartition(one.topic, partition)
            key = (one.destination, where)
            known = self.outcomes.setdefault(key, Outcomes())
            begin = self.begin_of(one.destination, where, world)
            acked = offsets.minus(known.done).from_offset(begin)
            position = world.positions.get(one.destination, {}).get(where)
            log = world.log_of(one.destination, where)
            account = account_for(acked, known, position=position, log=log)
            yield where, account, confirmed(known, account.suspects, rules, now_ms=world.now_ms)

    def _ended(self, one: ToJudge) -> tuple[int, int]:
        """Return the counts of delivered and dead events from an earlier check of the minute."""
        nothing = (0, 0)
        if number_of(one.minute_ms) in self.ledgers[one.topic].checked.get(one.destination, ()):
            nothing = (one.minute.count, 0)
        return one.minute.ended.get(one.destination, nothing)

    def of_minute(
        self, topic: str, minute_ms: int, judged: Iterable[MinuteBooks], destinations: Iterable[str]
    ) -> list[MinuteBooks]:
        """Return the books judged now, and those of destinations with an earlier check."""
        known = {books.destination_id: books for books in judged}
        ledger = self.ledgers[topic]
        for destination in destinations:
            if number_of(minute_ms) in ledger.checked.get(destination, ()):
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
        uncompared: AbstractSet[tuple[str, int]] = frozenset(),
    ) -> None:
        """Drop the offsets of minutes with nothing open, and keep their counts.

        A minute that is still open for one destination loses its offsets only for the destinations
        for which it is checked, and only after it was compared with the log. Minutes in
        `uncompared` wait for their statement.
        """
        old_ms = world.now_ms - CLOSED_KEPT_MS
        for (topic, minute_ms), judged in by_minute(each.books for each in findings).items():
            ended = [books for books in judged if is_ended(books, old_ms)]
            if not ended or (topic, minute_ms) in uncompared:
                continue
            wanted = world.destinations[topic]
            all_books = self.of_minute(topic, minute_ms, ended, wanted)
            if len(all_books) == len(wanted):
                self._close(topic, minute_ms, all_books, world)
                continue
            if self.ledgers[topic].only_in_rows(self.ledgers[topic].look(minute_ms)):
                continue
            for books in ended:
                if books.state is MinuteState.CHECKED:
                    self._enter_checked(topic, minute_ms, books)
        self._sweep(world, rules, uncompared)
        self.forget_old(world)

    def _sweep(self, world: World, rules: Rules, uncompared: AbstractSet[tuple[str, int]]) -> None:
        """Close minutes that are checked for all remaining destinations, and pack old ones."""
        told_ms = world.now_ms - rules.check_after_ms - rules.overdue_ms - HOUR_MS
        old_ms = min(told_ms, world.now_ms - CLOSED_KEPT_MS)
        for topic, minute_ms in list(self.all_checked(world)):
            minute = self.ledgers[topic].look(minute_ms)
            is_uncompared = (topic, minute_ms) in uncompared
            if not is_uncompared and world.is_over(topic, minute_ms, minute, rules):
                wanted = world.destinations.get(topic, ())
                all_books = self.of_minute(topic, minute_ms, (), wanted)
                self._close(topic, minute_ms, all_books, world)
        for topic, ledger in self.ledgers.items():
            for minute_ms, minute in list(ledger.minutes.items()):
                is_old = 0 <= minute_ms < old_ms and (topic, minute_ms) not in uncompared
                if is_old and world.is_asked(topic, minute_ms, minute, rules):
                    ledger.pack(minute_ms)


_NONE_OVERDUE = OverdueMinutes()


def _count(sure: Mapping[Stage, Offsets], *stages: Stage) -> int:
    return sum(len(sure.get(stage, ())) for stage in stages)
