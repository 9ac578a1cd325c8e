"""Measures archives and databases, and prints a table and one JSON object as the last line.

`python -m benchmarks.archive [--short] [keeping] ...`: all there is, or what is named (a module of
`figures` each). `--short`: fewer events, to see whether it works.
"""

from benchmarks.archive import figures
from benchmarks.figure_run import run_figures

if __name__ == "__main__":
    run_figures(figures)
