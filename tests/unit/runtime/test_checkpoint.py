"""Which events a new lane must call possible duplicates, read from Spark's own files."""

from pathlib import Path

import pytest

from shared.runtime.spark.checkpoint import replay_until, replayed_micro_batch, sweep

PLAN = 'v1\n{"batchWatermarkMs":0}\n{"hifi.stream.demo":{"0":7,"1":9}}\n'


def write(checkpoint: Path, log: str, number: int, text: str = "v1\n{}\n") -> None:
    (checkpoint / log).mkdir(parents=True, exist_ok=True)
    (checkpoint / log / str(number)).write_text(text)


def test_a_lane_that_never_ran_has_nothing_to_replay(tmp_path: Path) -> None:
    assert replay_until(tmp_path / "none") == {}


def test_a_committed_micro_batch_is_not_replayed(tmp_path: Path) -> None:
    write(tmp_path, "offsets", 0, PLAN)
    write(tmp_path, "commits", 0)
    assert replay_until(tmp_path) == {}


def test_a_micro_batch_without_its_commit_is_replayed_to_its_end(tmp_path: Path) -> None:
    write(tmp_path, "offsets", 9, "v1\n{}\n" + '{"hifi.stream.demo":{"0":3,"1":3}}\n')
    write(tmp_path, "commits", 9)
    write(tmp_path, "offsets", 10, PLAN)
    assert replay_until(tmp_path) == {("hifi.stream.demo", 0): 7, ("hifi.stream.demo", 1): 9}


def test_sparks_own_temporary_files_are_not_taken_for_plans(tmp_path: Path) -> None:
    write(tmp_path, "offsets", 1, PLAN)
    write(tmp_path, "commits", 1)
    (tmp_path / "offsets" / ".2.crc").write_text("x")
    (tmp_path / "offsets" / "2.tmp").write_text("half a plan")
    assert replay_until(tmp_path) == {}


@pytest.mark.parametrize(
    ("planned", "committed", "replayed"),
    [([], [], None), ([0], [], 0), ([0, 1], [0], 1), ([0, 1], [0, 1], None), ([9, 10], [9], 10)],
)
def test_the_retrier_knows_which_micro_batch_may_have_been_sent(
    tmp_path: Path, planned: list[int], committed: list[int], replayed: int | None
) -> None:
    for folder, numbers in (("offsets", planned), ("commits", committed)):
        (tmp_path / folder).mkdir()
        for number in numbers:
            (tmp_path / folder / str(number)).touch()
            (tmp_path / folder / f".{number}.crc").touch()
    assert replayed_micro_batch(tmp_path) == replayed


def test_what_a_killed_writer_left_is_swept_away_and_nothing_else(tmp_path: Path) -> None:
    sweep(tmp_path / "none")
    write(tmp_path, "offsets", 1, PLAN)
    write(tmp_path, "commits", 1)
    write(tmp_path, "sources/0", 0)
    kept = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    for log in ("offsets", "commits", "sources/0"):
        (tmp_path / log / ".2.d0c18e0b-aa60-4daf-a4e1-0a346cab0f27.tmp").write_text("half a plan")
    sweep(tmp_path)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == kept
