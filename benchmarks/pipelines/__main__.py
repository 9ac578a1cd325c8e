"""Measures pipelines, and prints a table and one JSON object as the last line.

`python -m benchmarks.pipelines [--short] [rates] [one-partition] [idle] ...`: all there is, or
what is named (a module of `figures` each). `--short`: fewer events, to see whether it works.
"""

from benchmarks.figure_run import run_figures
from benchmarks.pipelines import figures

if __name__ == "__main__":
    run_figures(figures)
