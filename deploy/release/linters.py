"""Checks workflows, the Dockerfile, alert rules and the names of metrics with other programs.

`python -m deploy.release.linters` runs them all. A missing program is named and its check skipped;
with `--all` it is an error.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from deploy.release.tools import attempt
from shared.metric_names import CATALOGUE, Metric


class Linter(NamedTuple):
    """A program with its arguments, how to get it, and the text for its standard input."""

    command: tuple[str, ...]
    source: str
    given: str = ""


def exposition(metrics: Sequence[Metric]) -> str:
    """Return metrics in the text format of Prometheus, with one value each."""
    return "".join(
        f"# HELP {m.name} {m.meaning}\n# TYPE {m.name} {m.kind}\n{_series(m)}" for m in metrics
    )


def _series(metric: Metric) -> str:
    labels = [f'{label}="x"' for label in metric.labels]
    if metric.kind != "histogram":
        return f"{metric.name}{{{','.join(labels)}}} 1\n"
    buckets = ",".join([*labels, 'le="+Inf"'])
    ends = "".join(f"{metric.name}_{end}{{{','.join(labels)}}} 1\n" for end in ("sum", "count"))
    return f"{metric.name}_bucket{{{buckets}}} 1\n{ends}"


LINTERS = (
    Linter(("zizmor", "--offline", "--quiet", "--no-progress", "."), "`make setup`"),
    Linter(("actionlint", "-no-color"), "Go and `make .tools/bin/actionlint`"),
    Linter(("hadolint", "deploy/images/Dockerfile"), "`make setup`"),
    Linter(("promtool", "check", "rules", "deploy/alerts/hifi.yaml"), "`.ci/programs`"),
    Linter(("promtool", "check", "metrics"), "`.ci/programs`", exposition(CATALOGUE)),
)


def problems(*, needs_all: bool = False, linters: Sequence[Linter] = LINTERS) -> Iterator[str]:
    """Yield what the programs find."""
    for linter in linters:
        yield from attempt(
            *linter.command, source=linter.source, needs_all=needs_all, given=linter.given
        )


def main(arguments: Sequence[str]) -> int:
    found = list(problems(needs_all="--all" in arguments))
    sys.stderr.write("".join(f"{each}\n" for each in found))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
