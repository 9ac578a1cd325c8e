"""Runs all benches, one after the other; `python -m benchmarks.NAME` runs one.

At the end it prints the changes of each bench again. A failed bench does not stop the others.
"""

import subprocess
import sys

from benchmarks.catalogue import BENCHES
from benchmarks.report import last_changes


def main() -> int:
    lines = []
    for bench in BENCHES:
        print(f"\n== {bench}", flush=True)
        argv = [sys.executable, "-u", "-m", f"benchmarks.{bench}"]
        is_failed = subprocess.run(argv, check=False).returncode != 0
        lines += [f"{bench}: failed"] if is_failed else last_changes(bench)
    print("", *lines, sep="\n")
    return int(any(line.endswith(": failed") for line in lines))


if __name__ == "__main__":
    raise SystemExit(main())
