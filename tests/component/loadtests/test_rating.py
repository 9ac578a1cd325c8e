"""A rating from its first step to its file and its page, against a server that stands for Hifi."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from loadtests.rating import Wanted, caveats
from loadtests.recorder import PERCENTILES
from loadtests.report.plots import nice_step, nines, number
from loadtests.report.sheet import sheet
from tests.support.locust_runs import ROOT
from tests.support.rated_server import running_rated_server


def test_one_step_gives_a_file_and_a_page(tmp_path: Path) -> None:
    """Whether it is met depends on how busy this machine is; what is written does not."""
    options = {
        "--rate": "60",
        "--batch": "1",
        "--hold": "3s",
        "--warm-up": "0s",
        "--processes": "1",
        "--label": "c7g.large",
        "--slo-p99-ms": "2000",
    }
    with running_rated_server() as host:
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "loadtests", "ingest", "--gateway", host),
                *("--out", str(tmp_path)),
                *(part for pair in options.items() for part in pair),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert ended.returncode in {0, 3}, ended.stderr
    file = tmp_path / "ingest-c7g.large-w1-b1-500.json"
    rating = json.loads(file.read_text())
    assert rating["what"] == "ingest"
    assert rating["slo"]["p99_ms"] == 2_000
    assert [step["events_per_s"] for step in rating["steps"]] == [60]
    assert rating["is_shared"]
    assert not rating["is_confirmed"]
    assert "<svg" in file.with_suffix(".html").read_text()
    assert str(file) in ended.stdout


def test_a_gateway_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "loadtests", "ingest", "--gateway", "http://127.0.0.1:9"),
            *("--out", str(tmp_path)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("hifi: No gateway answers at http://127.0.0.1:9")
    assert list(tmp_path.iterdir()) == []


def step_of(rate: float, verdict: str, p99_ms: float) -> dict[str, Any]:
    due = {f"p{each:g}": round(p99_ms * (0.02 + each / 120), 3) for each in PERCENTILES}
    return {
        "events_per_s": rate,
        "acked_per_s": min(rate, 61_000),
        "verdict": verdict,
        "reasons": [] if verdict == "met" else [f"p99 {p99_ms} ms, 100 ms promised"],
        "planned": 0.6 * rate,
        "measured_s": 60,
        "sent": round(rate * 0.6),
        "due_ms": {**due, "p99": p99_ms},
        "service_ms": {name: value / 2 for name, value in due.items()},
        "late_ms": {"p99": 2.5},
        "cpu_share": 0.41,
        "seconds": [[second, rate / 100, rate / 100, rate] for second in range(15, 75)],
    }


def rating_of(workers: int = 1, rated: float = 56_000.0) -> dict[str, Any]:
    return {
        "what": "ingest",
        "label": "<b>c7g.large",
        "date": "2026-11-23T06:00:00Z",
        "commit": "abc1234",
        "batch": 100,
        "event_bytes": 500,
        "workers": workers,
        "slo": {"p99_ms": 100.0, "error_share": 0.001, "unsent_share": 0.0},
        "rated_per_s": rated,
        "not_at_per_s": 57_500.0,
        "saturated_per_s": 61_000.0,
        "is_confirmed": True,
        "is_limited_by_generator": False,
        "is_shared": False,
        "generator": {
            "processes": 2,
            "processor": "Graviton",
            "cores": 4,
            "memory_gb": 8.0,
            "kernel": "Linux 6.1",
            "python": "3.12",
            "load_average": 0.1,
        },
        "steps": [
            step_of(40_000.0, "met", 22.0),
            step_of(80_000.0, "broken", 1_900.0),
            step_of(160_000.0, "invalid", 4_000.0),
            step_of(rated, "met", 81.0),
        ],
        "caveats": ["Generator & Hifi shared a machine"],
    }


def test_the_page_has_every_plot_and_nothing_from_elsewhere() -> None:
    others = [rating_of(n, rate) for n, rate in ((1, 56e3), (2, 108e3), (4, 190e3), (8, 300e3))]
    page = sheet(rating_of(), others)
    drawn = [
        ET.fromstring(f"<svg{part.split('</svg>')[0]}</svg>") for part in page.split("<svg")[1:]
    ]
    assert [each.get("aria-label") for each in drawn] == [
        "p99 over offered load",
        "latency by percentile",
        "offered and acknowledged over time",
        "scalability",
    ]
    assert "http" not in page, "it needs nothing else"
    assert "<b>c7g" not in page
    assert "&lt;b&gt;c7g.large" in page
    assert "56,000" in page
    assert "sigma" in page


def test_without_four_counts_of_workers_there_is_no_scalability() -> None:
    assert "Scalability" not in sheet(rating_of(), [rating_of(2)])


def test_nothing_rated_is_a_page_all_the_same() -> None:
    rating = {**rating_of(rated=0.0), "steps": [step_of(40_000.0, "invalid", 9_000.0)]}
    assert "Every step" in sheet(rating)
    assert "Every step" in sheet({**rating, "steps": []})


def test_what_a_figure_does_not_say_is_said_beside_it() -> None:
    rating = {**rating_of(), "is_shared": True, "label": "", "is_limited_by_generator": True}
    said = " ".join(caveats({**rating, "is_confirmed": False}))
    for words in ("shared a machine", "--label", "not repeated", "generator was the limit"):
        assert words in said
    assert caveats(rating_of()) == []


def test_promises_are_those_of_what_is_rated() -> None:
    assert Wanted(what="ingest").objective.p99_ms == 100
    assert Wanted(what="whole").objective.age_p95_ms == 1_000
    assert Wanted(what="delivery").objective.backlog_share == 0.01
    assert Wanted(gateway="http://10.0.0.1:8080").is_shared is False


@pytest.mark.parametrize(
    ("value", "text"), [(1500, "1.5k"), (300_000, "300k"), (2e6, "2M"), (0.5, "0.5")]
)
def test_numbers_along_an_axis_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_ticks_are_round_and_percentiles_as_far_apart_as_their_nines() -> None:
    assert [nice_step(about) for about in (0.7, 1.1, 23, 480)] == [1, 2, 50, 500]
    assert nines(99.9) - nines(99) == pytest.approx(1)
