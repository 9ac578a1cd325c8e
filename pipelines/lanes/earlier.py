"""Knows of a lane where Kafka's logs begin, and what an archive has of what was before. Pure.

What lies before the beginning of a log is read from an archive, piece by piece. A job has of each
Kafka partition events of one place only, and of an archive those of one piece: so none is read that
is not known to be there, and what is missing between two pieces is in no job.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.event.record import KafkaPartition, Position
from shared.runtime.archive.kept_log import Piece

# Of a job: each is read by one task, which has all objects of its part in memory.
PIECES_MAX = 2


@dataclass(slots=True)
class EarlierEvents:
    """Those of one lane."""

    # Where the logs begin of which Kafka has deleted what is to be read; empty: of none.
    borders: dict[KafkaPartition, int] = field(default_factory=dict)
    _pieces: dict[KafkaPartition, Piece] = field(default_factory=dict)

    def hide(self, borders: Position) -> None:
        """What lies before these is to be looked for."""
        self.borders |= borders

    def found(self, where: KafkaPartition, piece: Piece) -> None:
        self._pieces[where] = piece

    def look_again(self) -> None:
        """What was found did not come: it may be elsewhere, or nowhere any more."""
        self._pieces.clear()

    def ready(self, counts: Position, ats: Position) -> dict[KafkaPartition, int]:
        """How many of so many offsets from there on lie in one place, where that is known.

        Of an archive a job has the oldest, so that it goes through time as the stream did.
        """
        counts = {it: self._upto(it, ats[it], count) for it, count in counts.items()}
        kept = [it for it, count in counts.items() if count and self._hides(it, ats[it])]
        kept.sort(key=lambda it: self._pieces[it].at_ms(ats[it]))
        return {it: count for it, count in counts.items() if count and it not in kept[PIECES_MAX:]}

    def _hides(self, where: KafkaPartition, at: int) -> bool:
        return at < self.borders.get(where, 0)

    def _upto(self, where: KafkaPartition, at: int, count: int) -> int:
        if not self._hides(where, at):
            return count
        piece = self._pieces.get(where)
        if piece is None or not piece.has(at):
            return 0
        return min(count, piece.end - at, self.borders[where] - at)

    def pieces(self, begins: Position) -> Mapping[KafkaPartition, Piece]:
        """Those of what begins there that is not in Kafka."""
        return {it: self._pieces[it] for it, at in begins.items() if self._hides(it, at)}

    def unknown(self, ats: Position) -> Position:
        """What begins there is to be looked for."""
        return {where: at for where, at in ats.items() if not self._upto(where, at, 1)}

    def left(self, ats: Position) -> int:
        """How many offsets Kafka has no more of what begins there."""
        return sum(max(0, self.borders.get(where, 0) - at) for where, at in ats.items())

    def reached(self, where: KafkaPartition, at: int) -> None:
        """Forget what is behind."""
        if at >= self.borders.get(where, at + 1):
            del self.borders[where]
            self._pieces.pop(where, None)
