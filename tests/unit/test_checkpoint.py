"""Which events a new lane must call possible duplicates, read from Spark's own files."""

from pathlib import Path

from delivery.checkpoint import replay_until

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
