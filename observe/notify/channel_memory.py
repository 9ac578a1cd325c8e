"""Remembers for a channel what holds and what was told of it, and says what is due now."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from observe.notify.notices import Notice
from shared.config.outside.channel import Concern

# What comes back within this time was never over: a destination that flaps is told of once.
OVER_AFTER_S = 60.0


class OpenNotice(msgspec.Struct):
    """A notice, from when it was first seen until it was told that it is over."""

    notice: Notice
    since_ms: int
    seen_ms: int
    # At the last look; where nobody could look, it may be over.
    is_seen: bool = True
    is_told: bool = False


@dataclass(frozen=True, slots=True)
class Due:
    """What a channel has to be told, the oldest first."""

    begun: Sequence[OpenNotice]
    over: Sequence[OpenNotice]

    def __bool__(self) -> bool:
        return bool(self.begun or self.over)


@dataclass(slots=True)
class ChannelMemory:
    """What one channel knows; it has as many entries at most as there is trouble."""

    standings: dict[str, OpenNotice] = field(default_factory=dict)

    def look(self, notices: Sequence[Notice], untold: Collection[str], *, now_ms: int) -> bool:
        """Hear of all that is the matter now; whether anything began, or ended untold.

        `untold`: destinations of which nothing is known now, so that nothing of theirs ends.
        """
        before = set(self.standings)
        for standing in self.standings.values():
            standing.is_seen = False
            if standing.notice.destination_id in untold:
                standing.seen_ms = now_ms
        for notice in notices:
            known = self.standings.setdefault(notice.key, OpenNotice(notice, now_ms, now_ms))
            known.notice, known.seen_ms, known.is_seen = notice, now_ms, True
        for key, standing in [*self.standings.items()]:
            # Nobody is told that a loss is over: what was lost is lost.
            is_said = standing.is_told and standing.notice.concern is not Concern.LOSS
            if self._is_over(standing, now_ms) and not is_said:
                del self.standings[key]
        return before != set(self.standings)

    def stand_still(self, *, now_ms: int) -> None:
        """Nothing is known now: nothing is over for that, and nothing begins."""
        for standing in self.standings.values():
            standing.seen_ms, standing.is_seen = now_ms, False

    def due(self, *, now_ms: int) -> Due:
        oldest_first = sorted(self.standings.values(), key=lambda it: (it.since_ms, it.notice.key))
        return Due(
            [
                it
                for it in oldest_first
                if not it.is_told
                and it.is_seen
                and it.seen_ms - it.since_ms >= it.notice.holds_s * 1000
            ],
            [it for it in oldest_first if it.is_told and self._is_over(it, now_ms)],
        )

    def was_told(self, due: Due) -> None:
        for standing in due.begun:
            # Also what was over meanwhile: of that is told next.
            self.standings.setdefault(standing.notice.key, standing).is_told = True
        for standing in due.over:
            self.standings.pop(standing.notice.key, None)

    @staticmethod
    def _is_over(standing: OpenNotice, now_ms: int) -> bool:
        return now_ms - standing.seen_ms >= OVER_AFTER_S * 1000


def memories_from(content: bytes, *, now_ms: int) -> dict[str, ChannelMemory]:
    """By channel, as it was written; what held then is taken to have held until now."""
    kept = msgspec.json.decode(content, type=dict[str, list[OpenNotice]])
    for standings in kept.values():
        for standing in standings:
            standing.seen_ms = now_ms
    return {
        name: ChannelMemory({it.notice.key: it for it in standings})
        for name, standings in kept.items()
    }


def to_bytes(told: Mapping[str, ChannelMemory]) -> bytes:
    return msgspec.json.encode({name: [*each.standings.values()] for name, each in told.items()})
