"""Merges what was computed of some events with what was computed of others. Pure.

Spark computes a part of each aggregate from the events of a job; parts of the same window are put
together here, in any order and in any number, and become the value that is written. All parts can
be written as JSON. What is a value of the events is its JSON text, so that nothing is lost of it.
"""

import base64
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, TypeAlias

from pipelines.functions.states import Folded

# What Spark or an earlier merge made of events; None of none.
Part: TypeAlias = Any

# Of a set, what is kept: so many values, and so many bytes of them.
SET_MAX, SET_BYTES_MAX = 1_000, 32_768
# Of values that are counted for `top`, those that may still be among the first.
TOP_KEPT, TOP_MAX, TOP_BYTES = 1_000, 100, 65_536
# Registers of six bits of a hash: different values are counted to within 3 %.
_REGISTERS_BITS = 10
REGISTERS = 1 << _REGISTERS_BITS
RANKS = 64
# As many are told one by one; more take less room all together.
_SPARSE_MAX = 256
# Of a tenth of the registers nothing may be known, and the rest still tells (Flajolet and others).
_ALPHA = 0.7213 / (1 + 1.079 / REGISTERS)
# A sum of a stream's longest numbers, for as long as there will be streams.
_EXACT = Context(prec=76)
# A sum that had more digits than Spark keeps stays this, whatever is added to it.
OVERFLOW = "Infinity"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """How parts of it are merged, and what is written of one, as JSON."""

    merge: Callable[[Part, Part], Part]
    finish: Callable[[Part], str]
    # Whether something of it was left out, which the row then says.
    is_cut: Callable[[Part], bool] = lambda _: False


def merged(name: str, one: Part, other: Part) -> Part:
    """One part of two."""
    if one is None or other is None:
        return other if one is None else one
    return AGGREGATES[name].merge(one, other)


def _sum(one: Part, other: Part) -> Part:
    """Of numbers that are exact, as texts; and of others, which a step may have made of them."""
    if isinstance(one, str) and isinstance(other, str):
        return format(_EXACT.add(Decimal(one), Decimal(other)), "f")
    return float(one) + float(other)


def _number(part: Part) -> str:
    is_one = part != OVERFLOW and (isinstance(part, str) or math.isfinite(part))
    return str(part) if is_one else "null"


def _mean(part: Part) -> str:
    total, count = part
    return _number(float(total) / count) if count and total is not None else "null"


def _value(text: str) -> tuple[bool, Any]:
    """By which values are compared; what was a number may be a text since a step was changed."""
    value = json.loads(text, parse_float=Decimal)
    return isinstance(value, str), value


def _set(one: Part, other: Part) -> Part:
    kept, left = kept_of({*one["v"], *other["v"]})
    return {"v": kept, "cut": one["cut"] or other["cut"] or left}


def kept_of(texts: set[str]) -> tuple[list[str], bool]:
    """The first of them in order, as many as are kept; and whether there are more."""
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
    """Those that were seen most; others have no more chance, unless they come very often."""
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
    """The first of them, and how often each was seen."""
    first = _ranked(part["v"])[:count]
    return "[" + ",".join(f'{{"value":{text},"count":{seen}}}' for text, seen in first) + "]"


def states_of(counts: Mapping[str, int]) -> Part:
    """What a reducer has made of some events, that is still to be folded."""
    return {"states": dict(counts)} if counts else None


def folded_part(folded: Folded) -> Part:
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
    """Register times RANKS and rank of each value's hash, in as little room as there may be."""
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
    "sum": Aggregate(_sum, _number, lambda part: bool(part == OVERFLOW)),
    "avg": Aggregate(
        lambda one, other: [merged("sum", one[0], other[0]), one[1] + other[1]],
        _mean,
        lambda part: bool(part[0] == OVERFLOW),
    ),
    "min": Aggregate(lambda one, other: min(one, other, key=_value), str),
    "max": Aggregate(lambda one, other: max(one, other, key=_value), str),
    # The place of an event in time and in the log, and what it said.
    "first": _FIRST,
    "last": Aggregate(max, _FIRST.finish),
    "approx_count_distinct": Aggregate(_distinct, _estimate),
    "collect_set": Aggregate(
        _set, lambda part: "[" + ",".join(part["v"]) + "]", lambda part: bool(part["cut"])
    ),
    "call": Aggregate(_states, lambda part: str(part["says"])),
    "top": Aggregate(_top, lambda part: top_text(part, TOP_MAX), lambda part: bool(part["cut"])),
}
