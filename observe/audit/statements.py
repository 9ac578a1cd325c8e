"""Makes a statement about a minute when it is judged, and again when that changes.

A minute of which something cannot be told gets none: what is signed is certain.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from observe.audit.books import AuditFinding, World, by_minute
from observe.audit.memory import Memory
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

    def to_state(self, findings: Sequence[AuditFinding], world: World) -> Iterator[tuple[str, int]]:
        """The minutes whose ids must be read for a statement, by topic."""
        shown = [finding.books for finding in findings]
        for topic, minute_ms, _ in self._judged(shown, world):
            stated = self._memory.stated.get((topic, minute_ms))
            if stated is None or stated.acked != self._memory.books.acked(topic, minute_ms):
                yield topic, minute_ms

    async def state(self, shown: Sequence[MinuteBooks], named: Named, world: World) -> None:
        """Make a statement about every judged minute whose books are not those stated last."""
        made: list[SignedStatement] = []
        for topic, minute_ms, minutes in self._judged(shown, world):
            stated = self._memory.stated.get((topic, minute_ms))
            acked = self._memory.books.acked(topic, minute_ms)
            if stated is not None and stated.acked == acked:
                root, id_count = stated.root, stated.id_count
            elif (topic, minute_ms) in named.roots:
                raw, id_count = named.roots[topic, minute_ms]
                root = raw.hex()
            else:
                # Nothing that is left names its events.
                continue
            counts = {
                stream_and_name(minute.destination_id)[1]: _counts(minute) for minute in minutes
            }
            if stated is not None and (stated.root, stated.acked, stated.destinations) == (
                root, acked, counts,
            ):  # fmt: skip
                continue
            statement = Statement(
                stream=stream_of(topic),
                minute_ms=minute_ms,
                revision=stated.revision + 1 if stated is not None else 1,
                acked=acked,
                id_count=id_count,
                root=root,
                destinations=counts,
                issued_at_ms=world.now_ms,
                previous=self._memory.chain.get(topic, NO_PREVIOUS),
            )
            made.append(self._signer.sign(statement))
            self._memory.chain[topic] = statement.digest
            self._memory.stated[topic, minute_ms] = statement
        await self._publish(made)

    def _judged(
        self, shown: Sequence[MinuteBooks], world: World
    ) -> Iterator[tuple[str, int, list[MinuteBooks]]]:
        """Open minutes that are judged at every destination of their stream, oldest first."""
        books_of = by_minute(shown)
        for topic, ledger in self._memory.books.ledgers.items():
            for minute_ms, minute in sorted(ledger.minutes.items()):
                judged = books_of.get((topic, minute_ms), [])
                due_ms = minute.quiet_since_ms(minute_ms) + self._rules.settle_ms
                if world.now_ms >= due_ms and all(books.state in _JUDGED for books in judged):
                    yield topic, minute_ms, judged


def _counts(books: MinuteBooks) -> Counts:
    return Counts(
        delivered=books.delivered,
        waiting=books.waiting,
        dead=books.dead,
        lost={node.value: count for node, count in books.lost.items()},
    )
