"""Estimates how large an expression's result may be: how many times the bytes of each member."""

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from pipelines.parts.heap import TEXT, TypeOf
from shared.event.envelope import EVENT_BYTES_MAX


class Size(NamedTuple):
    """The largest size of a value, for each byte of its source."""

    bytes: float = 1.0
    # Its bytes in memory, with all objects that it is made of.
    memory: float = 1.0
    # The number of elements in its lists.
    elements: float = 0.0
    # Known for values that are in the event unchanged.
    type: TypeOf | None = None

    def times(self, factor: float) -> "Size":
        return Size(self.bytes * factor, self.memory * factor, self.elements * factor)


# The largest size of the bytes of each member, by its path.
Growth: TypeAlias = Mapping[tuple[str, ...], Size]

NOTHING: Growth = {}
# More than any sensible step makes, and small enough for memory.
GROWTH_MAX = 32.0
# The maximum number of bytes that the literals of one expression may produce, for any event.
WRITTEN_MAX = 65_536
# The maximum number of bytes in memory for each byte of an event. An executor has 768 bytes for
# each byte of the largest event.
MEMORY_MAX = 160.0
# The key for literals: no member has this name.
_WRITTEN = ("",)


def of_member(type_: TypeOf, *path: str) -> Growth:
    return {path: Size(1.0, *type_.density, type_)}


def of_written(byte_count: float, elements: int = 0) -> Growth:
    """The growth of a literal, or of a list with this many elements."""
    return {_WRITTEN: Size(byte_count, byte_count + elements * TEXT, elements)}


def of_each(listed: Growth, *, byte_count: float = 0.0, memory: float) -> Growth:
    """The growth of a result for each element of a list."""
    return {
        path: Size(size.elements * byte_count, size.elements * memory, size.elements)
        for path, size in listed.items()
    }


def within(whole: Growth, names: list[str]) -> Growth:
    """The growth of a member within a value of this growth."""
    if not names:
        return whole
    if len(whole) == 1 and _WRITTEN not in whole:
        ((path, size),) = whole.items()
        if size.type is not None and size.bytes == 1.0:
            return of_member(_at(size.type, names), *path, *names)
    return _changed(whole, lambda type_: _at(type_, names))


def element(listed: Growth) -> Growth:
    """The growth of one element of a list or a map."""
    return _changed(listed, lambda type_: type_.element)


def _at(type_: TypeOf, names: list[str]) -> TypeOf:
    for name in names:
        type_ = type_.member(name)
    return type_


def _changed(growth: Growth, change: Callable[[TypeOf], TypeOf]) -> Growth:
    """Change the types of values that do not grow."""

    def changed(size: Size) -> Size:
        if size.type is None:
            return size
        type_ = change(size.type)
        memory, elements = (size.bytes * per_byte for per_byte in type_.density)
        return Size(size.bytes, min(size.memory, memory), min(size.elements, elements), type_)

    return {path: changed(size) for path, size in growth.items()}


def retyped(growth: Growth, made: TypeOf) -> Growth:
    """Set the type where none was known."""
    return {path: size if size.type else size._replace(type=made) for path, size in growth.items()}


def untyped(growth: Growth) -> Growth:
    """Another value that is made of the same bytes."""
    return {path: size._replace(type=None) for path, size in growth.items()}


def as_text(growth: Growth) -> Growth:
    """The text of this value."""
    return {path: Size(size.bytes, min(size.bytes, size.memory)) for path, size in growth.items()}


def shown(growth: Growth) -> Growth:
    """The text in which Spark shows a value, which has a word even for each member that is null.

    A missing member takes at least twice as much memory as its word in the text.
    """
    return {
        path: Size(most := max(size.bytes, size.memory / 2), most) for path, size in growth.items()
    }


def read_as(text: Growth, type_: TypeOf, each: float | None = None) -> Growth:
    """A value read from this text; with `each`, a list with this much memory for each byte."""
    memory, elements = type_.density if each is None else (1 + each, 1.0)

    def read(size: Size) -> Size:
        # Texts in a list take more memory than they have bytes, and only the bytes can be read.
        count = min(size.bytes, size.memory)
        return Size(size.bytes, count * memory, count * elements, type_)

    return {path: read(size) for path, size in text.items()}


def limited(growth: Growth, chars: int) -> Growth:
    """A text with at most this many characters, in the largest event."""
    share = 4 * max(0, chars) / EVENT_BYTES_MAX
    return {path: size._replace(memory=min(size.memory, share)) for path, size in growth.items()}


def together(growths: Iterable[Growth]) -> Growth:
    """The sum of these growths."""
    return _joined(growths, operator.add)


def either(growths: Iterable[Growth]) -> Growth:
    """The larger of these, member by member."""
    return _joined(growths, max)


def _joined(growths: Iterable[Growth], join: Callable[[float, float], float]) -> Growth:
    def joined(one: Size, other: Size) -> Size:
        return Size(
            join(one.bytes, other.bytes),
            join(one.memory, other.memory),
            join(one.elements, other.elements),
        )

    all_of_it: dict[tuple[str, ...], Size] = {}
    for growth in growths:
        for path, size in growth.items():
            before = all_of_it.get(path)
            all_of_it[path] = size if before is None else joined(before, size)
    return all_of_it


def times(growth: Growth, factor: float) -> Growth:
    if factor == 1.0:
        return growth
    return {path: size.times(factor) for path, size in growth.items()}


def worst(growth: Growth) -> float:
    """The maximum number of bytes for each byte of the event: two members never share bytes."""
    return _worst({path: size.bytes for path, size in growth.items()})


def worst_memory(growth: Growth) -> float:
    """The maximum number of bytes in memory for each byte of the event."""
    written = growth.get(_WRITTEN, _NONE).memory / EVENT_BYTES_MAX
    return written + _worst({path: size.memory for path, size in growth.items()})


def _worst(counts: Mapping[tuple[str, ...], float]) -> float:
    return max(
        (
            sum(count for path, count in counts.items() if leaf[: len(path)] == path)
            for leaf in counts
            if leaf != _WRITTEN
        ),
        default=0.0,
    )


def written(growth: Growth) -> float:
    """How many bytes its literals make, independent of the event."""
    return growth.get(_WRITTEN, _NONE).bytes


_NONE = Size(0.0, 0.0)
