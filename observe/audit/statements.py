"""Makes a statement about a minute when it is judged, and again when that changes.

A destination of which something cannot be told is left out until it can, however late that is:
what is signed is certain. Ids are read when the minute is over, while the ledger still has them.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from observe.audit.findings import AuditFinding, World, by_minute
from observe.audit.memory import Memory, Stated, digest_of
from observe.audit.minutes import Rules
from observe.audit.signing import Signer
from observe.audit.spark_tasks import Named
from shared.event.topics import stream_and_name, stream_of
from shared.proof.overview import MinuteBooks, MinuteState
from shared.proof.statement import NO_PREVIOUS, Counts, SignedStatement, Statement

# Hands out statements; returns once Kafka has them.
Publish: TypeAlias = Callable[[Sequence[SignedStatement]], Awaitable[None]]

_JUDGED = frozenset({MinuteState.COMPLETE, MinuteState.LOSING})


@dataclass(frozen=True, slots=True)
class Stating:
    """Makes statements, signs them and hands them out."""

    _memory: Memory
    _signer: Signer
    _rules: Rules
    _publish: Publish

    def to_name(self, world: World) -> Iterator[tuple[str, int]]:
        """The minutes whose ids must be read, by topic: they are over, and have new events.

        What comes to a minute that was stated and forgotten is in no statement: the one there is
        stands, as another would be about a part of its events.
        """
        for topic, ledger in self._memory.books.ledgers.items():
            for minute_ms, minute in sorted(ledger.minutes.items()):
                stated = self._memory.stated.get((topic, minute_ms))
                acked = self._memory.books.acked(topic, minute_ms)
                # Fewer than were stated: Kafka has deleted a part of what named them meanwhile.
                if (
                    world.is_over(topic, minute_ms, minute, self._rules)
                    and (stated is None or stated.acked < acked)
                    and not self._memory.is_forgotten(topic, minute_ms)
                ):
                    yield topic, minute_ms

    async def state(self, findings: Sequence[AuditFinding], named: Named, world: World) -> None:
        """Make a statement about every judged minute whose books are not those stated last."""
        memory = self._memory
        for key, (root, id_count) in named.roots.items():
            before = memory.stated.get(key)
            memory.stated[key] = Stated(
                0 if before is None else before.revision,
                memory.books.acked(*key),
                id_count,
                root.hex(),
                "" if before is None else before.said,
            )
        made: list[SignedStatement] = []
        for topic, minute_ms, minutes in self._judged(findings, world):
            stated = memory.stated.get((topic, minute_ms))
            acked = memory.books.acked(topic, minute_ms)
            if stated is None or stated.acked != acked:
                # Nothing that is left names its events.
                continue
            counts = {
                stream_and_name(minute.destination_id)[1]: _counts(minute) for minute in minutes
            }
            said = digest_of(acked, stated.root, counts)
            if stated.said == said:
                continue
            stated.revision, stated.said = stated.revision + 1, said
            derived = memory.books.derived(topic, minute_ms)
            statement = Statement(
                stream=stream_of(topic),
                minute_ms=minute_ms,
                revision=stated.revision,
                acked=acked - derived,
                derived=derived,
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

    def _judged(
        self, findings: Sequence[AuditFinding], world: World
    ) -> Iterator[tuple[str, int, list[MinuteBooks]]]:
        """Minutes that are over, with the books of the destinations that they are judged at.

        Where one may still be judged in time, all wait for it; what cannot be told holds up none.
        """
        known = self._memory.books
        judged_of = by_minute(finding.books for finding in findings)
        unwanted = [
            (topic, minute_ms)
            for topic, ledger in known.ledgers.items()
            if not world.destinations.get(topic)
            for minute_ms in ledger.times_ms()
        ]
        for topic, minute_ms in sorted([*judged_of, *unwanted]):
            judged = judged_of.get((topic, minute_ms), [])
            wanted = world.destinations.get(topic, ())
            certain = [books for books in judged if books.state in _JUDGED]
            minutes = known.of_minute(topic, minute_ms, certain, wanted)
            minute = known.ledgers[topic].look(minute_ms)
            if (
                bool(minutes) == bool(wanted)
                and not any(books.state is MinuteState.OPEN for books in judged)
                and world.is_over(topic, minute_ms, minute, self._rules)
            ):
                yield topic, minute_ms, minutes


def _counts(books: MinuteBooks) -> Counts:
    return Counts(
        delivered=books.delivered,
        waiting=books.waiting,
        dead=books.dead,
        lost={node.value: count for node, count in books.lost.items()},
        not_passed=books.not_passed,
    )
