"""Remembers a channel's open and sent notices, and tells which are due now."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from observe.notify.notices import Notice
from shared.config.outside.channel import Concern

# Trouble that returns within this time counts as never over: a flapping destination is one notice.
OVER_AFTER_S = 60.0


class OpenNotice(msgspec.Struct):
    """A notice, kept from when it is first seen until the channel has heard that it is over."""

    notice: Notice
    since_ms: int
    seen_ms: int
    # Whether the last check found it; also False if no check was possible.
    is_seen: bool = True
    is_told: bool = False


@dataclass(frozen=True, slots=True)
class Due:
    """The notices to send to a channel, the oldest first."""

    begun: Sequence[OpenNotice]
    over: Sequence[OpenNotice]

    def __bool__(self) -> bool:
        return bool(self.begun or self.over)


@dataclass(slots=True)
class ChannelMemory:
    """The open notices of one channel."""

    standings: dict[str, OpenNotice] = field(default_factory=dict)

    def look(self, notices: Sequence[Notice], untold: Collection[str], *, now_ms: int) -> bool:
        """Enter all current trouble; return whether any began, or ended without a message.

        `untold`: destinations whose state is unknown, so that their notices do not end.
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
            # A loss is never reported as over: lost events stay lost.
            is_said = standing.is_told and standing.notice.concern is not Concern.LOSS
            if self._is_over(standing, now_ms) and not is_said:
                del self.standings[key]
        return before != set(self.standings)

    def stand_still(self, *, now_ms: int) -> None:
        """Keep all notices as they are while nothing is known: none ends and none begins."""
        for standing in self.standings.values():
            standing.seen_ms, standing.is_seen = now_ms, False

    def due(self, *, now_ms: int) -> Due:
        oldest_first = sorted(
            self.standings.values(), key=lambda standing: (standing.since_ms, standing.notice.key)
        )
        return Due(
            [
                standing
                for standing in oldest_first
                if not standing.is_told
                and standing.is_seen
                and standing.seen_ms - standing.since_ms >= standing.notice.holds_s * 1000
            ],
            [
                standing
                for standing in oldest_first
                if standing.is_told and self._is_over(standing, now_ms)
            ],
        )

    def was_told(self, due: Due) -> None:
        for standing in due.begun:
            # If a notice ended meanwhile, add it again, so that its end is sent next.
            self.standings.setdefault(standing.notice.key, standing).is_told = True
        for standing in due.over:
            self.standings.pop(standing.notice.key, None)

    @staticmethod
    def _is_over(standing: OpenNotice, now_ms: int) -> bool:
        return now_ms - standing.seen_ms >= OVER_AFTER_S * 1000


def memories_from(content: bytes, *, now_ms: int) -> dict[str, ChannelMemory]:
    """Return the saved memories by channel; their open notices count as seen until now."""
    kept = msgspec.json.decode(content, type=dict[str, list[OpenNotice]])
    for standings in kept.values():
        for standing in standings:
            standing.seen_ms = now_ms
    return {
        name: ChannelMemory({own.notice.key: own for own in standings})
        for name, standings in kept.items()
    }


def to_bytes(told: Mapping[str, ChannelMemory]) -> bytes:
    return msgspec.json.encode({name: [*each.standings.values()] for name, each in told.items()})
