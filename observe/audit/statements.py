"""Signs a statement about each minute that was judged, and a new one when its books change.

Every signed fact is certain: a destination with uncertain events is left out until they are
checked, however late. Ids are read when the minute is over, while the ledger still has them, and
compared with those in the log.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import structlog

from observe.audit.evidence import Claim, unite
from observe.audit.findings import AuditFinding, World, by_minute
from observe.audit.ids.sample import sample
from observe.audit.memory import Memory, StatedMinute, digest_of
from observe.audit.minutes import Rules
from observe.audit.signing import Signer
from observe.audit.spark_job import AuditReads
from observe.audit.spark_tasks import LoggedRun, MinuteRoots
from shared.event.record import KafkaPartition, Ranges
from shared.event.topics import stream_and_name, stream_of
from shared.proof.intervals import Offsets
from shared.proof.overview import MinuteBooks, MinuteState
from shared.proof.statement import NO_PREVIOUS, Counts, SignedStatement, Statement

log = structlog.get_logger()

# A minute of a stream's topic.
Key: TypeAlias = tuple[str, int]
# The maximum number of stretches of each Kafka partition to compare, over all minutes together.
_BLOCKS = 8
# The maximum number of ids in one line of our own log.
_LOGGED_MAX = 20
# Publishes statements; returns once Kafka has them.
Publish: TypeAlias = Callable[[Sequence[SignedStatement]], Awaitable[None]]

_JUDGED = frozenset({MinuteState.CHECKED, MinuteState.LOSS})


@dataclass(frozen=True, slots=True)
class Naming:
    """Reads the ids of minutes that are over, and finds those that the log does not have."""

    _job: AuditReads
    _memory: Memory
    _log: Ranges

    async def of_minutes(self, minutes: Collection[Key]) -> tuple[MinuteRoots, list[LoggedRun]]:
        """Return roots over all their ids, and the log's events where the ledger has other ids.

        These events are entered, which changes the minutes: the caller must ask for roots again.
        """
        books = self._memory.books
        due = {
            (topic, minute_ms): books.ledgers[topic].only_in_rows(
                books.ledgers[topic].look(minute_ms)
            )
            for topic, minute_ms in minutes
        }
        chosen = {
            key: sample(offsets, f"{key[0]} {key[1]}", blocks=max(1, _BLOCKS // len(due)))
            for key, offsets in due.items()
        }
        named = await self._read(minutes, chosen)
        odd = {(topic, minute) for (topic, _, _), (minute, _) in named.wrong.items()}
        if doubted := {key: due[key] for key in odd if key in due and chosen[key] != due[key]}:
            # If a sample has a wrong id, compare all ids of the minute.
            whole = await self._read(doubted, doubted)
            compared, wrong = dict(named.compared), dict(named.wrong)
            named = replace(
                named, compared=compared | dict(whole.compared), wrong=wrong | dict(whole.wrong)
            )
        for topic, minute_ms in minutes:
            count = named.compared.get((topic, minute_ms), 0)
            books.ledgers[topic].note_compared(minute_ms, count)
        return named, await self._enter_wrong(named)

    async def of_places(self, offsets: Mapping[KafkaPartition, Offsets]) -> MinuteRoots:
        """Return the ids of single offsets."""
        if not offsets:
            return MinuteRoots()
        ledger: dict[int, Offsets] = {}
        for topic, known in self._memory.books.ledgers.items():
            for minute in known.minutes.values():
                numbers = {*minute.acked, *(number for number, _, _ in minute.gone)}
                if any((topic, number) in offsets for number in numbers):
                    unite(ledger, minute.ledger)
        return await asyncio.to_thread(
            self._job.name, ledger, minutes=(), offsets=offsets, extra={}, compare={}
        )

    async def _read(
        self, minutes: Collection[Key], compare: Mapping[Key, Mapping[int, Offsets]]
    ) -> MinuteRoots:
        books = self._memory.books
        extra, unread = await self._ids_in_log(minutes)
        stated = [key for key in minutes if key not in unread]
        ledger: dict[int, Offsets] = {}
        named_by_rows: set[Key] = set()
        for topic, minute_ms in stated:
            rows = books.ledgers[topic].look(minute_ms).ledger
            unite(ledger, rows)
            if rows:
                named_by_rows.add((topic, minute_ms))
        if not stated:
            return MinuteRoots()
        asked = {key: self._there(key[0], compare[key]) for key in named_by_rows}
        named = await asyncio.to_thread(
            self._job.name,
            ledger,
            minutes=stated,
            offsets={},
            extra={key: ids for key, ids in extra.items() if key in named_by_rows},
            compare=asked,
        )
        return await asyncio.to_thread(named.with_roots, extra)

    def _there(self, topic: str, offsets: Mapping[int, Offsets]) -> dict[int, Offsets]:
        """Return the offsets that are still in the log."""
        kept = {
            number: Offsets.of(spans.within(*self._log.get(KafkaPartition(topic, number), (0, 0))))
            for number, spans in offsets.items()
        }
        return {number: spans for number, spans in kept.items() if spans}

    async def _ids_in_log(self, stated: Collection[Key]) -> tuple[dict[Key, list[str]], set[Key]]:
        """Return, by minute, the ids that no ledger row has; and the minutes where some are gone.

        The ids are read again each time, so that memory does not grow with writes of pipelines and
        restores.
        """
        due = {key: there for key in stated if (there := self._memory.books.in_log(*key))}
        wanted: dict[KafkaPartition, Offsets] = {}
        for there in due.values():
            unite(wanted, there)
        ids: dict[Key, list[str]] = {}
        for run in await self._look_up(wanted):
            ids.setdefault((run.where.topic, run.minute), []).extend(run.ids)
        gone = {
            key
            for key, there in due.items()
            if len(ids.get(key, ())) < sum(map(len, there.values()))
        }
        return {key: ids[key] for key in due if key not in gone}, gone

    async def _look_up(self, wanted: Mapping[KafkaPartition, Offsets]) -> Sequence[LoggedRun]:
        if not wanted:
            return ()
        return await asyncio.to_thread(self._job.look_up, wanted, self._log)

    async def _enter_wrong(self, named: MinuteRoots) -> list[LoggedRun]:
        """Enter the log's events in place of acknowledged events, which are gone."""
        ours: dict[KafkaPartition, Offsets] = {}
        for (topic, partition, offset), (minute, _) in named.wrong.items():
            known = self._memory.books.ledgers[topic].look(minute)
            if offset in known.acked.get(partition, Offsets()):
                where = KafkaPartition(topic, partition)
                ours.setdefault(where, Offsets()).add(offset, offset + 1)
        others = [run for run in await self._look_up(ours) if self._is_other(run, named)]
        for run in others:
            acknowledged = [
                named.wrong[run.where.topic, run.where.partition, at][1]
                for at in range(run.first, run.end)
            ]
            log.error(
                "audit.misplaced",
                topic=run.where.topic,
                partition=run.where.partition,
                first=run.first,
                acknowledged=acknowledged[:_LOGGED_MAX],
                stored=run.ids[:_LOGGED_MAX],
                count=len(acknowledged),
            )
            self._memory.books.claim(
                Claim(
                    *run.where, run.minute, run.first, run.end, run.accepted_at_ms, (-1, 0, 0),
                    run.is_derived,
                ),
                is_from_log=True,
            )  # fmt: skip
        return others

    @staticmethod
    def _is_other(run: LoggedRun, named: MinuteRoots) -> bool:
        places = ((*run.where, run.first + index) for index in range(len(run.ids)))
        return all(
            named.wrong[place][1] != event_id
            for place, event_id in zip(places, run.ids, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Stating:
    """Creates, signs and publishes statements."""

    _memory: Memory
    _signer: Signer
    _rules: Rules
    _publish: Publish

    def to_name(self, world: World) -> Iterator[tuple[str, int]]:
        """Yield the minutes whose ids must be read, by topic: they are over, and have new events.

        After a loss of memory these are all minutes, as a minute with the same number of events may
        have other events. If the facts of a minute with a statement were dropped, its later events
        get no statement: the existing one stays, because a new one would cover only some of them.
        """
        for topic, ledger in self._memory.books.ledgers.items():
            for minute_ms, minute in sorted(ledger.minutes.items()):
                stated = self._memory.stated.get((topic, minute_ms))
                acked = self._memory.books.acked(topic, minute_ms)
                # If `acked` is lower, Kafka has deleted some of the records that named the events.
                if (
                    world.is_over(topic, minute_ms, minute, self._rules)
                    and (stated is None or stated.acked < acked or ledger.only_in_rows(minute))
                    and not self._memory.is_forgotten(topic, minute_ms)
                ):
                    yield topic, minute_ms

    async def state(
        self, findings: Sequence[AuditFinding], named: MinuteRoots, world: World
    ) -> frozenset[Key]:
        """Publish a statement about each judged minute whose books differ from its last statement.

        After a loss of memory the books may differ because the audit has forgotten where the log
        contradicts the ledger. Return such minutes: they wait until they are compared again.
        """
        memory = self._memory
        for key, (root, id_count) in named.roots.items():
            before = memory.stated.get(key)
            if before is not None and before.acked > memory.books.acked(*key):
                continue
            minute = memory.books.ledgers[key[0]].look(key[1])
            only_in_log = sum(map(len, memory.books.in_log(*key).values()))
            memory.stated[key] = StatedMinute(
                0 if before is None else before.revision,
                minute.count,
                id_count,
                root.hex(),
                "" if before is None else before.said,
                minute.compared + only_in_log,
            )
        made: list[SignedStatement] = []
        doubted: set[Key] = set()
        for topic, minute_ms, judged in self._judged(findings, world):
            ledger = memory.books.ledgers[topic]
            minute = ledger.look(minute_ms)
            acked, stated = minute.count, memory.stated.get((topic, minute_ms))
            if stated is None or stated.acked < acked:
                # No remaining record names all its events.
                continue
            # Destinations that began later have no events in this minute, and so no line.
            counts = {
                stream_and_name(books.destination_id)[1]: _counts(books)
                for books in judged
                if books.acked
            }
            digest = digest_of(acked, stated.compared, stated.root, counts)
            if ledger.only_in_rows(minute):
                # It was packed until now, so its ids are not compared yet.
                doubted.add((topic, minute_ms))
                continue
            if stated.said == digest or stated.acked > acked:
                continue
            stated.revision, stated.said = stated.revision + 1, digest
            statement = Statement(
                stream=stream_of(topic),
                minute_ms=minute_ms,
                revision=stated.revision,
                acked=acked - minute.derived,
                derived=minute.derived,
                compared=stated.compared,
                id_count=stated.id_count,
                root=stated.root,
                destinations=counts,
                issued_at_ms=world.now_ms,
                previous=memory.chain.get(topic, NO_PREVIOUS),
            )
            made.append(self._signer.sign(statement))
            memory.chain[topic] = statement.digest
            memory.note_stated(topic, minute_ms)
        await self._publish(made)
        return frozenset(doubted)

    def _judged(
        self, findings: Sequence[AuditFinding], world: World
    ) -> Iterator[tuple[str, int, list[MinuteBooks]]]:
        """Yield the minutes that are over, with the books of all destinations that were judged.

        All wait for a destination that may still be judged in time, but not for one whose state is
        CANNOT_TELL.
        """
        known = self._memory.books
        judged_of = by_minute(finding.books for finding in findings)
        for topic, minute_ms in sorted({*judged_of, *known.all_checked(world)}):
            judged = judged_of.get((topic, minute_ms), [])
            wanted = world.destinations.get(topic, ())
            certain = [books for books in judged if books.state in _JUDGED]
            minutes = [
                books
                for books in known.of_minute(topic, minute_ms, certain, wanted)
                if books.delivered + books.waiting + books.dead + books.lost_count
                == books.acked
                == known.owed(topic, minute_ms, books.destination_id, world)
            ]
            minute = known.ledgers[topic].look(minute_ms)
            if (
                (minutes or not wanted)
                and not any(books.state is MinuteState.UNCHECKED for books in judged)
                and world.is_over(topic, minute_ms, minute, self._rules)
            ):
                yield topic, minute_ms, minutes


def _counts(books: MinuteBooks) -> Counts:
    return Counts(
        delivered=books.delivered,
        waiting=books.waiting,
        dead=books.dead,
        lost={stage.value: count for stage, count in books.lost.items()},
        not_passed=books.not_passed,
        due=books.acked,
    )
