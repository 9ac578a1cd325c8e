"""A bench reports what became better or worse than on similar machines, beyond noise."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report
from benchmarks.catalogue import BENCHES, ERRORS, Figure
from benchmarks.report import record
from benchmarks.rows import FILE, Row, changes, machine, read_rows

ROOT = Path(__file__).parents[3]


def row(day: str = "30", processor: str = "AMD EPYC 7B13", **figures: Any) -> Row:
    return {
        "bench": "gateway",
        "date": f"2026-11-{day}T10:00:00Z",
        "commit": f"c{day}",
        "cores": 2,
        "processor": processor,
        "core_speed": 100,
        **figures,
    }


OLD = row("20", ratio_batch_1=1.0, p99_ms_batch_100=20.0, errors=0)


@pytest.mark.parametrize(
    ("figures", "lines"),
    [
        ({"ratio_batch_1": 0.86}, ["no change beyond noise (EPYC, 2 cores, core speed 100)"]),
        ({"ratio_batch_1": 1.15}, ["no change beyond noise (EPYC, 2 cores, core speed 100)"]),
        ({"ratio_batch_1": 0.84}, ["worse: ratio_batch_1 0.84, was 1.0 (2026-11-20, c20)"]),
        ({"ratio_batch_1": 1.16}, ["better: ratio_batch_1 1.16, was 1.0 (2026-11-20, c20)"]),
        ({"p99_ms_batch_100": 28}, ["worse: p99_ms_batch_100 28, was 20.0 (2026-11-20, c20)"]),
        ({"p99_ms_batch_100": 12}, ["better: p99_ms_batch_100 12, was 20.0 (2026-11-20, c20)"]),
        (
            {"ratio_batch_1": 0.5, "errors": 1},
            [
                "worse: ratio_batch_1 0.5, was 1.0 (2026-11-20, c20), misses its target of 0.6",
                "worse: errors 1, was 0 (2026-11-20, c20), misses its target of 0",
            ],
        ),
        (
            {"rss_mb": 300},
            ["new: rss_mb 300, no row from such a machine has it, misses its target of 256"],
        ),
        ({"rounds": 1}, ["no change beyond noise (EPYC, 2 cores, core speed 100)"]),
    ],
)
def test_each_figure_that_changed_beyond_noise_has_a_line(
    figures: dict[str, Any], lines: list[str]
) -> None:
    assert list(changes(row(**figures), [OLD])) == [f"gateway: {line}" for line in lines]


def test_a_target_that_is_still_missed_has_a_line() -> None:
    old = row("20", ratio_batch_1=0.5)
    assert list(changes(row(ratio_batch_1=0.52), [old])) == [
        "gateway: unchanged: ratio_batch_1 0.52, misses its target of 0.6"
    ]


def test_small_figures_have_room_for_noise() -> None:
    idle = {"bench": "idle", "cores_fresh": 0.10}
    assert list(changes(row() | idle | {"cores_fresh": 0.13}, [row("20") | idle])) == [
        "idle: no change beyond noise (EPYC, 2 cores, core speed 100)"
    ]


def test_each_figure_is_compared_with_the_newest_row_that_has_it() -> None:
    rows = [OLD, row("21", ratio_batch_1=2.0), row("22", rss_mb=100)]
    assert list(changes(row(ratio_batch_1=1.0, p99_ms_batch_100=40.0), rows)) == [
        "gateway: worse: ratio_batch_1 1.0, was 2.0 (2026-11-21, c21)",
        "gateway: worse: p99_ms_batch_100 40.0, was 20.0 (2026-11-20, c20)",
    ]


@pytest.mark.parametrize(
    "other",
    [{"processor": "Intel(R) Xeon(R) CPU"}, {"cores": 4}, {"core_speed": 83}, {"core_speed": 121}],
)
def test_another_kind_of_machine_is_nothing_to_compare_with(other: dict[str, Any]) -> None:
    now = row(ratio_batch_1=0.1) | other
    assert list(changes(now, [OLD])) == [
        (
            "gateway: nothing to compare with: no row is from such a machine"
            f" ({machine(now)}, core speed {now['core_speed']})"
        )
    ]


def test_a_machine_whose_speed_is_almost_the_same_is_alike() -> None:
    (line,) = changes(row(ratio_batch_1=0.7, core_speed=119), [OLD])
    assert line.startswith("gateway: worse: ratio_batch_1 0.7, was 1.0")


def test_a_row_without_a_speed_says_nothing_of_a_machine_with_one() -> None:
    old = {name: value for name, value in OLD.items() if name != "core_speed"}
    (line,) = changes(row(ratio_batch_1=0.1), [old])
    assert "nothing to compare with" in line


def test_another_bench_is_nothing_to_compare_with() -> None:
    (line,) = changes(row(rss_mb=1), [OLD | {"bench": "delivery"}])
    assert "nothing to compare with" in line


def test_a_machine_is_of_a_family_or_has_a_name_of_its_own() -> None:
    assert machine(row(processor="Intel(R) Xeon(R) CPU @ 2.20GHz")) == "Xeon, 2 cores"
    assert machine(row(processor="Apple M3")) == "Apple M3, 2 cores"


def test_rows_are_read_by_date(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row(day)) + "\n" for day in ("22", "20", "21")))
    assert [each["commit"] for each in read_rows(file)] == ["c20", "c21", "c22"]


def test_results_are_recorded_once_and_by_name(tmp_path: Path) -> None:
    results, file = tmp_path / "results", tmp_path / "rows.jsonl"
    results.mkdir()
    file.write_text(json.dumps(OLD) + "\n")
    for bench in ("gateway", "idle", "status"):
        (results / f"{bench}.json").write_text(json.dumps(row() | {"bench": bench}) + "\n")
    assert record(["idle"], results, file) == ["idle"]
    assert record([], results, file) == ["gateway", "status"]
    assert record([], results, file) == []
    benches = [each["bench"] for each in read_rows(file)]
    assert benches == ["gateway", "idle", "gateway", "status"]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(report, "read_rows", lambda: [OLD])
    monkeypatch.setattr(report, "describe", lambda: {**row(), "bench": "gateway"})
    return tmp_path


def test_a_bench_ends_with_its_changes_and_its_result(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report.report("gateway", {"ratio_batch_1": 0.7})
    *_, change, last = capsys.readouterr().out.splitlines()
    assert change == "gateway: worse: ratio_batch_1 0.7, was 1.0 (2026-11-20, c20)"
    assert json.loads(last) == row(ratio_batch_1=0.7)
    assert (results / "gateway.json").read_text() == f"{last}\n"
    assert report.last_changes("gateway") == [change]


def test_a_run_with_less_work_is_neither_compared_nor_kept(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report.report("gateway", {"ratio_batch_1": 0.7}, is_whole=False)
    (last,) = capsys.readouterr().out.split("\n")[1:-1]
    assert json.loads(last) == row(ratio_batch_1=0.7)
    assert list(results.iterdir()) == []


def test_each_target_holds_at_its_value() -> None:
    assert ERRORS.meets_target(0)
    assert not ERRORS.meets_target(1)
    share = Figure("share", "", True, 0.8)
    assert share.meets_target(0.8)
    assert not share.meets_target(0.79)


def test_each_bench_of_the_makefile_is_in_the_catalogue() -> None:
    run = set(re.findall(r"-m benchmarks\.(\w+)", (ROOT / "Makefile").read_text()))
    assert run - {"report"} == set(BENCHES)


def test_each_row_and_each_figure_of_the_catalogue_has_the_other() -> None:
    rows = read_rows(FILE)
    assert {each["bench"] for each in rows} == set(BENCHES)
    in_rows = {(each["bench"], name) for each in rows for name in each}
    assert {(bench, it.name) for bench, its in BENCHES.items() for it in its} - in_rows == set()
