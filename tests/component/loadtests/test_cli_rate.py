"""`hifi rate` passes its options on, says what is missing, and stores its result."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from benchmarks import machine
from deploy.cli.commands import app
from deploy.cli.scale import rate
from loadtests import rating
from loadtests.rating_file import RatingPlan, rating_of
from loadtests.search import Search
from shared.runtime.setup_error import UsageError
from tests.support.deploy.rated_steps import step_of


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["rate", *arguments])


def rated_by(monkeypatch: pytest.MonkeyPatch, *, holds: float) -> list[RatingPlan]:
    """Replace Locust by a scripted machine that holds a rate, and return the requested plans."""
    asked: list[RatingPlan] = []

    def find(wanted: RatingPlan, say: Any) -> dict[str, Any]:
        asked.append(wanted)
        search, steps = Search(wanted.first_rate), []
        while (offered := search.next_rate()) is not None:
            step = step_of(offered, "met" if offered <= holds else "broken", 50.0)
            steps.append(step | {"measured_s": wanted.hold_s})
            search.note(offered, steps[-1]["verdict"])
            say(f"step {len(steps)}")
        return rating_of(wanted, search, steps, machine.describe() | {"cores_stolen": 0.1})

    monkeypatch.setattr(rating, "rate", find)
    monkeypatch.setattr(rate, "find_spec", lambda _: object())
    return asked


def test_what_was_asked_for_is_handed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = rated_by(monkeypatch, holds=700)
    ended = invoke(
        *("whole", "--gateway", "http://10.0.0.5:8080", "--rate", "5000", "--api-key", "k1"),
        *("--cores", "4", "--warm-up", "1m", "--slo-p99-ms", "50", "--out", str(tmp_path)),
        *("--lean", "--processes", "3", "--latency", "realtime", "--event-bytes", "5000"),
    )
    assert ended.exit_code == 0, ended.output
    (wanted,) = asked
    assert (wanted.what, wanted.gateway, wanted.api_key) == ("whole", "http://10.0.0.5:8080", "k1")
    assert (wanted.rate, wanted.batch, wanted.start, wanted.cores) == (5_000, 100, None, 4)
    assert (wanted.hold_s, wanted.warmup_s) == (60, 60)
    assert (wanted.is_lean, wanted.processes, wanted.latency) == (True, 1, "realtime")
    assert (tmp_path / "looks" / "whole-4-cores-w1-b100-5000-realtime.json").exists()
    assert (wanted.objective.p99_ms, wanted.objective.age_p95_ms) == (50, 1_000)


def test_a_quick_rating_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = rated_by(monkeypatch, holds=50_000)
    ended = invoke("--quick", "--caveat", "Kafka on spinning disks.", "--out", str(tmp_path))
    assert ended.exit_code == 0, ended.output
    assert (asked[0].hold_s, asked[0].warmup_s) == (20, 5)
    assert "only 60 s include work done once a minute" in ended.stderr
    assert "Kafka on spinning disks." in ended.stderr


def test_what_was_rated_is_what_a_plan_is_made_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ratings are read in the form in which they are written."""
    rated_by(monkeypatch, holds=50_000)
    for what in ("gateway", "delivery", "whole"):
        ended = invoke(what, "--instance", "c7g.2xlarge", "--cores", "8", "--out", str(tmp_path))
        assert ended.exit_code == 0, ended.output
    asked = ("plan", "--events-per-s", "100000", "--ratings", str(tmp_path), "-o", "json")
    sized = CliRunner().invoke(app, asked)
    assert sized.exit_code == 0, sized.output
    for what, group in (("gateway", "gateways"), ("delivery", "delivery")):
        kept = f"{what}-c7g.2xlarge-w1-b100-500.json"
        found = json.loads(sized.stdout)[group]
        assert (found["rating_name"], found["basis"]) == (kept, "measured")
        assert found["rating"] == json.loads((tmp_path / kept).read_text())["rated"] > 48_000


def test_what_rates_nothing_is_kept_where_no_plan_finds_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rated_by(monkeypatch, holds=0)
    nothing = invoke("--out", str(tmp_path))
    assert nothing.exit_code == 3
    assert "No step met the objective." in nothing.stderr
    rated_by(monkeypatch, holds=50_000)
    assert invoke("--rate", "5000", "--out", str(tmp_path)).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["looks"]


def test_where_the_load_tests_are_not_it_is_said_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate, "find_spec", lambda name: None if name == "locust" else object())
    refused = invoke().exception
    assert isinstance(refused, UsageError)
    assert "Ratings need locust" in str(refused)
    assert "make rate" in str(refused)


def test_what_cannot_be_rated_is_refused() -> None:
    refused = invoke("--fresh", "--workers", "4").exception
    assert isinstance(refused, UsageError)
    assert "--fresh starts a gateway with one worker" in str(refused)
    assert invoke("everything").exit_code == 2
    assert invoke("--batch", "0").exit_code == 2
    assert invoke("--event-bytes", "10").exit_code == 2
    assert invoke("--hold", "soon").exit_code == 2
