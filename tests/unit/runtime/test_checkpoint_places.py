"""A lane whose latency changes goes on where its other self was, and never behind it."""

import json
from pathlib import Path

from shared.event.record import KafkaPartition
from shared.runtime.kafka.spark_options import starting_offsets
from shared.runtime.spark.checkpoint import is_behind, position, set_aside


def committed(folder: Path, number: int, ends: dict[str, int], *, topic: str = "t") -> None:
    for name, text in (
        ("offsets", f"v1\n{{}}\n{json.dumps({topic: ends})}"),
        ("commits", "v1\n{}"),
    ):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / str(number)).write_text(text)


def test_the_position_is_that_of_the_newest_commit_and_not_of_a_plan(tmp_path: Path) -> None:
    assert position(tmp_path / "none") == {}
    committed(tmp_path, 9, {"0": 3})
    committed(tmp_path, 10, {"0": 5, "1": 7})
    (tmp_path / "offsets" / "11").write_text('v1\n{}\n{"t": {"0": 99}}')
    assert position(tmp_path) == {("t", 0): 5, ("t", 1): 7}


def test_a_checkpoint_is_outdated_when_the_other_one_has_gone_further(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    assert not is_behind(own, other)
    committed(other, 0, {"0": 0})
    # Having been at the beginning is further than having been nowhere.
    assert is_behind(own, other)
    committed(own, 4, {"0": 10, "1": 10})
    assert not is_behind(own, other)
    committed(other, 1, {"0": 10, "1": 11})
    assert is_behind(own, other)
    assert not is_behind(other, own)


def test_an_outdated_checkpoint_is_kept_once(tmp_path: Path) -> None:
    own = tmp_path / "d"
    set_aside(own)
    for offset in (1, 2):
        committed(own, 0, {"0": offset})
        set_aside(own)
    assert not own.exists()
    assert position(tmp_path / "d.outdated") == {("t", 0): 2}


def test_a_position_is_said_in_sparks_words() -> None:
    assert json.loads(starting_offsets({KafkaPartition("t", 0): 5, KafkaPartition("t", 1): 7})) == {
        "t": {"0": 5, "1": 7}
    }
