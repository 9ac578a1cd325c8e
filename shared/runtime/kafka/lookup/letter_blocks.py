"""Remembers which streams have dead letters in which part of their topic.

A search for a stream's dead letters reads past another stream's many letters only once in a
process, and skips them from then on. A block takes about 100 bytes.
"""

from collections.abc import Callable, Iterator, Mapping

from shared.event.record import KafkaPartition

# The number of offsets in a block, and the maximum number of streams to distinguish in one.
BLOCK = 1_000
_STREAMS_MAX = 50
# Shorter runs of blocks are read anyway: skipping them starts a new read, which takes as long.
SKIPPED_MIN = 5


class LetterBlocks:
    """The streams of letters in each completely read block."""

    def __init__(self) -> None:
        self._streams: dict[KafkaPartition, dict[int, frozenset[str]]] = {}
        # Most blocks have the same few streams, so they share sets.
        self._same: dict[frozenset[str], frozenset[str]] = {}

    def learn(self, where: KafkaPartition, block: int, streams: set[str]) -> None:
        """Enter a block that was read."""
        if len(streams) <= _STREAMS_MAX:
            those = frozenset(streams)
            those = self._same.setdefault(those, those)
            self._streams.setdefault(where, {})[block] = those

    def keep(self, spans: Mapping[KafkaPartition, tuple[int, int]]) -> None:
        """Forget deleted blocks; forget all blocks if the topic is a new one."""
        for where, (start, end) in spans.items():
            known = self._streams.get(where, {})
            if known and max(known) * BLOCK >= end:
                known.clear()
            for block in [each for each in known if (each + 1) * BLOCK <= start]:
                del known[block]
        if not any(self._streams.values()):
            self._same.clear()

    def to_read(
        self, where: KafkaPartition, span: tuple[int, int], is_wanted: Callable[[str], bool]
    ) -> Iterator[tuple[int, int]]:
        """Yield the parts of [start, end) that may have letters of wanted streams, in order."""
        start, end = span
        known = self._streams.get(where, {})
        answers = {those: any(map(is_wanted, those)) for those in {*known.values()}}
        begin = start
        skipped = 0
        for block in range(start // BLOCK, -(-end // BLOCK)):
            if block in known and not answers[known[block]]:
                skipped += 1
                continue
            if skipped >= SKIPPED_MIN:
                yield from _part(begin, (block - skipped) * BLOCK)
                begin = block * BLOCK
            skipped = 0
        yield from _part(
            begin, end if skipped < SKIPPED_MIN else (-(-end // BLOCK) - skipped) * BLOCK
        )


class BlockReader:
    """Notes the streams of letters that are read in order from an offset on."""

    def __init__(self, blocks: LetterBlocks, where: KafkaPartition, start: int) -> None:
        self._blocks = blocks
        self._where = where
        # The first block that is read completely.
        self._block = -(-start // BLOCK)
        self._streams: set[str] = set()

    def see(self, offset: int, stream: str) -> None:
        self.reach(offset)
        if offset >= self._block * BLOCK:
            self._streams.add(stream)

    def reach(self, offset: int) -> None:
        """Note that everything before this offset was read."""
        while (self._block + 1) * BLOCK <= offset:
            self._blocks.learn(self._where, self._block, self._streams)
            self._streams = set()
            self._block += 1


def _part(begin: int, end: int) -> Iterator[tuple[int, int]]:
    if begin < end:
        yield begin, end
