"""Keeps a set of offsets in which each may be several times: set upon set."""

from collections.abc import Iterator

import msgspec

from shared.proof.intervals import Offsets


class Layers(msgspec.Struct, array_like=True):
    """The n-th set holds the offsets that are in at least n + 1 times."""

    _sets: list[Offsets] = []

    def add(self, first: int, end: int) -> None:
        """Put each offset in once more."""
        rest = Offsets.of([(first, end)])
        for layer in self._sets:
            if not len(rest):
                return
            already = rest.both(layer)
            for start, stop in rest:
                layer.add(start, stop)
            rest = already
        if len(rest):
            self._sets.append(rest)

    def remove(self, first: int, end: int) -> None:
        """Take each offset out once; what is not in stays out."""
        rest = Offsets.of([(first, end)])
        for at in range(len(self._sets) - 1, -1, -1):
            layer = self._sets[at]
            taken = rest.both(layer)
            self._sets[at] = layer.minus(taken)
            rest = rest.minus(taken)
        while self._sets and not len(self._sets[-1]):
            self._sets.pop()

    def forget(self, gone: Offsets) -> None:
        """Take offsets out, however often they are in."""
        kept = [layer.minus(gone) for layer in self._sets]
        self._sets = [layer for layer in kept if len(layer)]

    @property
    def present(self) -> Offsets:
        """What is in at least once."""
        return self._sets[0] if self._sets else Offsets()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Intervals that make the same when they are added one by one."""
        for layer in self._sets:
            yield from layer
