"""Tracks where a lane's Kafka logs begin, and which earlier events archives hold. Pure.

Events before the beginning of a log are read from an archive, piece by piece. A job's events of one
Kafka partition come from one place only: from Kafka, or from one piece of an archive. So a job
reads only events that are known to exist, and never across a gap between two pieces.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.event.record import KafkaPartition, Position
from shared.runtime.archive.archived_log import Piece

# The maximum number of pieces in a job: a task reads each, with all objects of its part in memory.
PIECES_MAX = 2


@dataclass(slots=True)
class ArchivedRanges:
    """The earlier events of one lane."""

    # The starts of logs from which Kafka has deleted events that are still to be read.
    borders: dict[KafkaPartition, int] = field(default_factory=dict)
    _pieces: dict[KafkaPartition, Piece] = field(default_factory=dict)

    def hide(self, borders: Position) -> None:
        """Look in archives for events before these borders."""
        self.borders |= borders

    def found(self, where: KafkaPartition, piece: Piece) -> None:
        self._pieces[where] = piece

    def look_again(self) -> None:
        """Forget the known pieces, which could not be read: they may have moved, or be gone."""
        self._pieces.clear()

    def ready(self, counts: Position, ats: Position) -> dict[KafkaPartition, int]:
        """Cut each count to the number of next offsets that are in one known place.

        A job takes the oldest pieces of archives, so that events come in the order of their time.
        """
        counts = {where: self._upto(where, ats[where], count) for where, count in counts.items()}
        kept = [
            where for where, count in counts.items() if count and self._hides(where, ats[where])
        ]
        kept.sort(key=lambda where: self._pieces[where].at_ms(ats[where]))
        return {
            where: count
            for where, count in counts.items()
            if count and where not in kept[PIECES_MAX:]
        }

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
        """The pieces to read where Kafka no longer has the events at these offsets."""
        return {
            where: self._pieces[where] for where, at in begins.items() if self._hides(where, at)
        }

    def unknown(self, ats: Position) -> Position:
        """Those of the offsets whose events are still to be looked up."""
        return {where: at for where, at in ats.items() if not self._upto(where, at, 1)}

    def left(self, ats: Position) -> int:
        """How many offsets after these positions Kafka no longer has."""
        return sum(max(0, self.borders.get(where, 0) - at) for where, at in ats.items())

    def reached(self, where: KafkaPartition, at: int) -> None:
        """Forget borders and pieces that the lane has passed."""
        if at >= self.borders.get(where, at + 1):
            del self.borders[where]
            self._pieces.pop(where, None)
