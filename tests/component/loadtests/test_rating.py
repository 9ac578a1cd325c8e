"""A rating from its first step to its file and page, against a server in place of Hifi."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from loadtests.rating import rate
from loadtests.rating_file import RatingPlan, caveats, keep
from loadtests.report.plots import nice_step, nines, number
from loadtests.report.sheet import sheet
from shared.runtime.setup_error import OperatorError, UsageError
from tests.support.deploy.rated_steps import step_of
from tests.support.servers.rated_server import running_rated_server


def test_one_step_gives_a_file_and_a_page(tmp_path: Path) -> None:
    """The verdict depends on how busy the machine is; the written files do not."""
    with running_rated_server() as host:
        wanted = RatingPlan(
            gateway=host, batch=1, rate=60, hold_s=3, warmup_s=0, instance="c7g.large"
        )
        said: list[str] = []
        rating = rate(wanted, said.append)
    assert said[0] == "step 1: 60 events/s for 3 s ..."
    assert [step["events_per_s"] for step in rating["steps"]] == [60]
    assert rating["steps"][0]["sent"] > 0
    assert rating["shared"]
    assert not rating["is_confirmed"]
    file, page = keep(rating, tmp_path, is_rating=False)
    assert file == tmp_path / "looks" / "gateway-c7g.large-w1-b1-500.json"
    assert json.loads(file.read_text()) == rating
    assert "<svg" in page.read_text()


def test_a_gateway_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(OperatorError, match=r"No gateway answers at http://127\.0\.0\.1:9"):
        rate(RatingPlan(gateway="http://127.0.0.1:9"), print)


def test_of_another_machine_one_must_say_how_many_cores_it_has() -> None:
    with pytest.raises(UsageError, match="Give the number of cores"):
        rate(RatingPlan(gateway="http://10.0.0.1:8080"), print)


def rating_of(workers: int = 1, rated: float = 56_000.0) -> dict[str, Any]:
    return {
        "what": "gateway",
        "machine": {"instance": "<b>c7g.large", "cpu": "Graviton", "cores": 2, "kernel": ""},
        "at": "2026-11-23T06:00:00Z",
        "commit": "abc1234",
        "batch": 100,
        "posted_batch": 100,
        "bytes": 500,
        "workers": workers,
        "slo": {"p99_ms": 100.0, "error_share": 0.001, "unsent_share": 0.0},
        "rated": rated,
        "not_at": 57_500.0,
        "saturated": 61_000.0,
        "is_confirmed": True,
        "is_limited_by_generator": False,
        "shared": False,
        "generator": {
            "processes": 2,
            "processor": "Graviton",
            "cores": 4,
            "memory_gb": 8.0,
            "kernel": "Linux 6.1",
            "python": "3.12",
            "load_average": 0.1,
            "cores_stolen": 0.02,
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
        "promised figure over offered load",
        "latency by percentile",
        "rates over time",
        "scalability",
    ]
    assert "http" not in page, "the page must load nothing from elsewhere"
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
    rating = {**rating_of(), "shared": True, "is_limited_by_generator": True}
    said = " ".join(caveats({**rating, "is_confirmed": False}))
    for words in ("shared a machine", "not repeated", "generator was the limit"):
        assert words in said
    unnamed = {**rating_of(), "machine": {**rating_of()["machine"], "instance": None}}
    assert caveats(unnamed) == ["The type of the rated machine was not given (--instance)."]
    assert caveats(rating_of()) == []


def test_promises_are_those_of_what_is_rated() -> None:
    assert RatingPlan(what="gateway").objective.p99_ms == 100
    assert RatingPlan(what="whole").objective.age_p95_ms == 1_000
    # A micro-batch under way is a larger share of a short step than of a long one.
    assert RatingPlan(what="delivery").objective.backlog_share == pytest.approx(0.01)
    assert RatingPlan(what="delivery", hold_s=20).objective.backlog_share == pytest.approx(0.03)
    assert RatingPlan(what="whole").objective.backlog_share is None
    assert RatingPlan(gateway="http://10.0.0.1:8080").is_shared is False


@pytest.mark.parametrize(
    ("value", "text"), [(1500, "1.5k"), (300_000, "300k"), (2e6, "2M"), (0.5, "0.5")]
)
def test_numbers_along_an_axis_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_ticks_are_round_and_percentiles_as_far_apart_as_their_nines() -> None:
    assert [nice_step(about) for about in (0.7, 1.1, 23, 480)] == [1, 2, 50, 500]
    assert nines(99.9) - nines(99) == pytest.approx(1)
