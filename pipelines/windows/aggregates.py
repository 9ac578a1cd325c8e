"""Merges aggregates of some events with those of others. Pure.

Spark computes a part of each aggregate from the events of a job; parts of the same window are
merged here, any number of them and in any order, into the value that is written. All parts can be
written as JSON. A value of an event is kept as its JSON text, so that no digit of it is lost.
"""

import base64
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, TypeAlias

from pipelines.functions.states import FoldedState

# The result that Spark or an earlier merge made of events; None if there were none.
Part: TypeAlias = Any

# The maximum numbers of values, and of bytes of values, that are kept of a set.
SET_MAX, SET_BYTES_MAX = 1_000, 32_768
# Limits of `top`: how many values are kept, as any of them may still become one of the first; how
# many are written; and how many bytes the kept ones have.
TOP_KEPT, TOP_MAX, TOP_BYTES = 1_000, 100, 65_536
# Registers of six bits, chosen by a hash: distinct values are counted to within 3 %.
_REGISTERS_BITS = 10
REGISTERS = 1 << _REGISTERS_BITS
RANKS = 64
# Up to this many registers are listed singly; more take less room as a whole array.
_SPARSE_MAX = 256
# The correction factor of HyperLogLog (Flajolet and others).
_ALPHA = 0.7213 / (1 + 1.079 / REGISTERS)
# Enough digits for a sum of a stream's longest numbers, however long it runs.
_EXACT = Context(prec=76)
# A job's sum with more digits than Spark keeps; later terms change nothing.
OVERFLOW = "Infinity"
# The digits that a number of a row may have, in one job or in the sum of many.
_DIGITS_MAX = 38


@dataclass(frozen=True, slots=True)
class Aggregate:
    """How an aggregate merges its parts, and writes one as JSON."""

    merge: Callable[[Part, Part], Part]
    finish: Callable[[Part], str]
    # Whether part of the result was left out, which the row then says.
    is_cut: Callable[[Part], bool] = lambda _: False


def merged(name: str, one: Part, other: Part) -> Part:
    """Merge two parts into one."""
    if one is None or other is None:
        return other if one is None else one
    return AGGREGATES[name].merge(one, other)


def _sum(one: Part, other: Part) -> Part:
    """Add exact numbers, which are texts; or floats, if a changed step has mixed both."""
    if isinstance(one, str) and isinstance(other, str):
        return format(_EXACT.add(Decimal(one), Decimal(other)), "f")
    return float(one) + float(other)


def _is_too_long(part: Part) -> bool:
    """Whether an exact sum has more digits than a number of a row may have."""
    return isinstance(part, str) and (
        part == OVERFLOW or len(Decimal(part).as_tuple().digits) > _DIGITS_MAX
    )


def _number(part: Part) -> str:
    is_one = isinstance(part, str) or math.isfinite(part)
    return str(part) if is_one and not _is_too_long(part) else "null"


def _mean(part: Part) -> str:
    total, count = part
    if not count or total is None or _is_too_long(total):
        return "null"
    return _number(float(total) / count)


def _value(text: str) -> tuple[bool, Any]:
    """The sort key of a value; a former number may be a text since a step was changed."""
    value = json.loads(text, parse_float=Decimal)
    return isinstance(value, str), value


def _set(one: Part, other: Part) -> Part:
    kept, left = kept_of({*one["v"], *other["v"]})
    return {"v": kept, "cut": one["cut"] or other["cut"] or left}


def kept_of(texts: set[str]) -> tuple[list[str], bool]:
    """Return the first texts in order, as many as are kept; and whether there are more."""
    kept: list[str] = []
    size = 0
    for text in sorted(texts):
        size += len(text.encode(errors="surrogatepass"))
        if len(kept) >= SET_MAX or size > SET_BYTES_MAX:
            return kept, True
        kept.append(text)
    return kept, False


def _top(one: Part, other: Part) -> Part:
    counts = dict(one["v"])
    for text, count in other["v"].items():
        counts[text] = counts.get(text, 0) + count
    return most_of(counts, is_cut=one["cut"] or other["cut"])


def most_of(counts: Mapping[str, int], *, is_cut: bool = False) -> Part:
    """Keep the most frequent values; dropped ones can win only if they become very frequent."""
    sizes = {text: len(text.encode(errors="surrogatepass")) for text in counts}
    if len(counts) <= 2 * TOP_KEPT and sum(sizes.values()) <= 2 * TOP_BYTES:
        return {"v": dict(counts), "cut": is_cut}
    kept, left = {}, TOP_BYTES
    for text, count in _ranked(counts)[:TOP_KEPT]:
        if (left := left - sizes[text]) < 0:
            break
        kept[text] = count
    return {"v": kept, "cut": True}


def _ranked(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))


def top_text(part: Part, count: int) -> str:
    """The most frequent values, and how often each was seen."""
    first = _ranked(part["v"])[:count]
    return "[" + ",".join(f'{{"value":{text},"count":{seen}}}' for text, seen in first) + "]"


def states_of(counts: Mapping[str, int]) -> Part:
    """The states that a reducer has made of some events, which are still to be folded."""
    return {"states": dict(counts)} if counts else None


def folded_part(folded: FoldedState) -> Part:
    return {"states": {folded.state: 1}, "says": folded.says}


def is_to_fold(part: Part) -> bool:
    return part is not None and "says" not in part


def _states(one: Part, other: Part) -> Part:
    return {"states": dict(Counter(one["states"]) + Counter(other["states"]))}


def _registers(part: Part) -> bytearray:
    if isinstance(part, str):
        return bytearray(base64.b64decode(part))
    ranks = bytearray(REGISTERS)
    for seen in part:
        register, rank = divmod(seen, RANKS)
        ranks[register] = max(ranks[register], rank)
    return ranks


def _distinct(one: Part, other: Part) -> Part:
    if isinstance(one, list) and isinstance(other, list):
        return packed({*one, *other})
    both = zip(_registers(one), _registers(other), strict=True)
    return base64.b64encode(bytes(map(max, both))).decode()


def packed(seen: set[int]) -> Part:
    """Pack the hashes, each as register * RANKS + rank, into as little room as possible."""
    if len(seen) <= _SPARSE_MAX:
        return sorted(seen)
    return base64.b64encode(_registers(seen)).decode()


def _estimate(part: Part) -> str:
    ranks = _registers(part)
    empty = ranks.count(0)
    guess = _ALPHA * REGISTERS**2 / sum(2.0**-rank for rank in ranks)
    if guess <= 2.5 * REGISTERS and empty:
        guess = REGISTERS * math.log(REGISTERS / empty)
    return str(round(guess))


_FIRST = Aggregate(min, lambda part: str(part[-1]))

AGGREGATES: Mapping[str, Aggregate] = {
    "count": Aggregate(int.__add__, str),
    "count_if": Aggregate(int.__add__, str),
    "sum": Aggregate(_sum, _number, _is_too_long),
    "avg": Aggregate(
        lambda one, other: [merged("sum", one[0], other[0]), one[1] + other[1]],
        _mean,
        lambda part: _is_too_long(part[0]),
    ),
    "min": Aggregate(lambda one, other: min(one, other, key=_value), str),
    "max": Aggregate(lambda one, other: max(one, other, key=_value), str),
    # An event's place in time and in the log, and its value.
    "first": _FIRST,
    "last": Aggregate(max, _FIRST.finish),
    "approx_count_distinct": Aggregate(_distinct, _estimate),
    "collect_set": Aggregate(
        _set, lambda part: "[" + ",".join(part["v"]) + "]", lambda part: bool(part["cut"])
    ),
    "call": Aggregate(_states, lambda part: str(part["says"])),
    "top": Aggregate(_top, lambda part: top_text(part, TOP_MAX), lambda part: bool(part["cut"])),
}
