"""Measures pipelines, and prints a table and one JSON object as the last line.

`python -m benchmarks.pipelines [--short] [rates] [one-partition] [idle] ...` runs all modules of
`figures`, or the named ones. `--short`: fewer events, to check that it works.
"""

from benchmarks.figure_run import run_figures
from benchmarks.pipelines import figures

if __name__ == "__main__":
    run_figures(figures)
