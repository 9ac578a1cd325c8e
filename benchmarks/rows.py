"""Reads the results of benches, one JSON object a line, and describes the changes in a new one.

A row is the last line that a bench printed, with the bench's name. Rows are in
docs/benchmarks.jsonl.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.catalogue import BENCHES, ERRORS, Figure

Row = dict[str, Any]
FILE = Path(__file__).parents[1] / "docs" / "benchmarks.jsonl"
_FAMILY = re.compile(r"EPYC|Xeon")
# Machines are alike if the speeds of their cores differ by less than this factor.
_ALIKE = 1.2


def read_rows(path: Path = FILE) -> list[Row]:
    """Return the rows, oldest first; merges may have added them in any order."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return sorted(rows, key=lambda row: str(row["date"]))


def machine(row: Row) -> str:
    """Return the kind of machine: cloud hosts rarely report more than the processor's family."""
    family = _FAMILY.search(row["processor"])
    return f"{family.group() if family else row['processor']}, {row['cores']} cores"


def is_alike(one: Row, other: Row) -> bool:
    """Say whether figures of two rows can be compared: same kind of machine, same speed."""
    speeds = sorted(row.get("core_speed", 0) for row in (one, other))
    return machine(one) == machine(other) and speeds[1] <= _ALIKE * speeds[0]


def newest(rows: Sequence[Row], figure: Figure) -> Row | None:
    return next((row for row in reversed(rows) if figure.name in row), None)


def changes(row: Row, rows: Iterable[Row]) -> Iterator[str]:
    """Yield a line for each figure that changed or misses its target; `rows` are oldest first."""
    bench, kind = row["bench"], f"{machine(row)}, core speed {row['core_speed']}"
    alike = [old for old in rows if old["bench"] == bench and is_alike(old, row)]
    if not alike:
        yield f"{bench}: nothing to compare with: no row is from such a machine ({kind})"
        return
    present = [figure for figure in (*BENCHES[bench], ERRORS) if figure.name in row]
    lines = [line for figure in present if (line := _change(figure, row, newest(alike, figure)))]
    yield from (f"{bench}: {line}" for line in lines or [f"no change beyond noise ({kind})"])


def _change(figure: Figure, row: Row, old: Row | None) -> str | None:
    value = row[figure.name]
    named = f"{figure.name} {value:,}"
    is_met = figure.meets_target(value)
    missed = "" if is_met else f", misses its target of {figure.target:,}"
    if old is None:
        return f"new: {named}, no row from such a machine has it{missed}"
    before = old[figure.name]
    if abs(value - before) > max(figure.noise * abs(before), figure.least):
        verdict = "better" if (value > before) == figure.is_more_better else "worse"
        return f"{verdict}: {named}, was {before:,} ({old['date'][:10]}, {old['commit']}){missed}"
    return None if is_met else f"unchanged: {named}{missed}"
