"""Where a lane of the retrier goes on, and what may be a repeat, read from Spark's own files."""

import json
from pathlib import Path

import pytest

from shared.event.record import KafkaPartition
from shared.runtime.kafka.spark_options import starting_offsets
from shared.runtime.spark.checkpoint import position, replayed_micro_batch, sweep


def write(checkpoint: Path, log: str, number: int, text: str = "v1\n{}\n") -> None:
    (checkpoint / log).mkdir(parents=True, exist_ok=True)
    (checkpoint / log / str(number)).write_text(text)


def plan(*sources: dict[str, dict[str, int]]) -> str:
    return "\n".join(["v1", "{}", *map(json.dumps, sources)])


def test_the_position_is_that_of_the_newest_commit_and_not_of_a_plan(tmp_path: Path) -> None:
    assert position(tmp_path / "none") == {}
    write(tmp_path, "offsets", 9, plan({"t": {"0": 3}}))
    assert position(tmp_path) == {}
    write(tmp_path, "commits", 9)
    write(tmp_path, "offsets", 10, plan({"t": {"0": 5, "1": 7}}, {"u": {"0": 2}}))
    write(tmp_path, "commits", 10)
    write(tmp_path, "offsets", 11, plan({"t": {"0": 99}}))
    assert position(tmp_path) == {("t", 0): 5, ("t", 1): 7, ("u", 0): 2}


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
    # Spark's own temporary files are not taken for plans.
    (tmp_path / "offsets" / "77.tmp").write_text("half a plan")
    assert replayed_micro_batch(tmp_path) == replayed
    assert replayed_micro_batch(tmp_path / "none") is None


def test_what_a_killed_writer_left_is_swept_away_and_nothing_else(tmp_path: Path) -> None:
    sweep(tmp_path / "none")
    write(tmp_path, "offsets", 1, plan({"t": {"0": 7}}))
    write(tmp_path, "commits", 1)
    write(tmp_path, "sources/0", 0)
    kept = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    for log in ("offsets", "commits", "sources/0"):
        (tmp_path / log / ".2.d0c18e0b-aa60-4daf-a4e1-0a346cab0f27.tmp").write_text("half a plan")
    sweep(tmp_path)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == kept


def test_a_position_is_said_in_sparks_words() -> None:
    assert json.loads(starting_offsets({KafkaPartition("t", 0): 5, KafkaPartition("t", 1): 7})) == {
        "t": {"0": 5, "1": 7}
    }
