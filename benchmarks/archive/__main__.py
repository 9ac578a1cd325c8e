"""Measures archives and databases, and prints a table and one JSON object as the last line.

`python -m benchmarks.archive [--short] [keeping] ...` runs all modules of `figures`, or the named
ones. `--short`: fewer events, to check that it works.
"""

from benchmarks.archive import figures
from benchmarks.figure_run import run_figures

if __name__ == "__main__":
    run_figures(figures)
