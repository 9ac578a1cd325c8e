"""Ends a bench: prints its changes and, last, its result, which `make bench-record` can store.

`python -m benchmarks.report [bench] ...` adds the latest results of these benches, or of all that
have run, to docs/benchmarks.jsonl.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from benchmarks.rows import FILE, changes, read_rows

RESULTS = FILE.parents[1] / "build" / "benchmarks"


def report(bench: str, figures: Mapping[str, Any], *, is_whole: bool = True) -> None:
    """Print a result; store and compare it only if the run was `is_whole`, with all its work."""
    row = {"bench": bench, **figures, **describe()}
    print()
    if is_whole:
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{bench}.json").write_text(json.dumps(row) + "\n", encoding="utf-8")
        print("\n".join(last_changes(bench)))
    print(json.dumps(row))


def last_changes(bench: str) -> list[str]:
    """Return the changes in a bench's last run."""
    row = json.loads((RESULTS / f"{bench}.json").read_text(encoding="utf-8"))
    return list(changes(row, read_rows()))


def record(benches: Sequence[str], results: Path = RESULTS, file: Path = FILE) -> list[str]:
    """Move results to the rows; return the benches that were added."""
    wanted = [results / f"{bench}.json" for bench in benches] or sorted(results.glob("*.json"))
    with file.open("a", encoding="utf-8") as rows:
        for result in wanted:
            rows.write(result.read_text(encoding="utf-8"))
            result.unlink()
    return [result.stem for result in wanted]


if __name__ == "__main__":
    print("added:", *record(sys.argv[1:]) or ["nothing; run a bench first"])
