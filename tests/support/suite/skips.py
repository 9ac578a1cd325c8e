"""Reports at the end which tests were skipped, and what they lacked.

In continuous integration a skipped test fails: nobody reads about tests that did not run.
"""

import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

_IS_CI = os.environ.get("CI") == "true"
# Where `make test` adds up what its parts have skipped.
_LIST = "PYTEST_SKIPPED"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _IS_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which fails in continuous integration: {_why(report)}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [
        (report.nodeid, _why(report)) for report in terminalreporter.stats.get("skipped", [])
    ]
    if not skipped:
        return
    terminalreporter.section("skipped")
    for name, why in skipped:
        terminalreporter.line(f"{name}: {why}")
    counts = Counter(why for _, why in skipped)
    said = "; ".join(f"{why} ({count})" for why, count in counts.most_common())
    terminalreporter.line(f"{len(skipped)} tests were skipped: {said}.")
    if path := os.environ.get(_LIST):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("a") as file:
            file.writelines(f"{why}\n" for _, why in skipped)


def _why(report: pytest.TestReport) -> str:
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return why.removeprefix("Skipped: ")
