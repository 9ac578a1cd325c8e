"""A bad rating is a clear error, the fitting one is chosen, and old ones cause a warning."""

import json
from datetime import date
from typing import Any

import pytest

from shared.scale.ratings import best_rating, read_rating, warnings_of
from shared.scale.scale_error import ScaleError

GATEWAY: dict[str, Any] = {
    "what": "gateway",
    "machine": {"instance": "c7g.2xlarge", "cpu": "Graviton3", "cores": 8, "kernel": "6.1"},
    "commit": "abc1234",
    "at": "2026-11-23T06:00:00Z",
    "slo": {"p99_ms": 100},
    "batch": 100,
    "bytes": 500,
    "rated": 400_000,
    "saturated": 450_000,
    "steps": [{"offered": 400_000, "p99_ms": 80}],
    "shared": False,
    "generator": "a member that this reader does not know",
}


def rating(**changed: Any) -> str:
    return json.dumps(GATEWAY | changed)


def test_a_rating_is_read_and_members_of_others_are_passed_by() -> None:
    read = read_rating("g.json", rating())
    assert (read.rated, read.of_core, read.day) == (400_000, 50_000, date(2026, 11, 23))
    assert read.machine.instance == "c7g.2xlarge"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "g.json is not a rating: Input data was truncated"),
        (rating(rated="much"), "$.rated"),
        (rating(rated=0), "rated is 0 and must be above 0"),
        (rating(machine={"cpu": "x", "cores": 0}), "machine.cores is 0"),
        (rating(machine={"cores": 4}), "missing required field `cpu`"),
        (rating(batch=0), "batch is 0"),
        (rating(bytes=-5), "bytes is -5"),
        (rating(at="yesterday"), "Invalid isoformat string"),
        (json.dumps({"what": "gateway"}), "missing required field `machine`"),
    ],
)
def test_what_is_wrong_with_a_rating_is_said(text: str, says: str) -> None:
    with pytest.raises(ScaleError) as told:
        read_rating("g.json", text)
    assert says in str(told.value)
    assert "g.json is not a rating" in str(told.value)


def test_of_several_ratings_the_instance_counts_then_honesty_then_batch_and_age() -> None:
    other = {"cpu": "x", "cores": 8}
    texts = {
        "same": rating(at="2026-01-01"),
        "newer": rating(machine=other),
        "older": rating(machine=other, at="2026-01-01", rated=900_000),
        "other batch": rating(machine=other, batch=1_000, at="2027-01-01", rated=900_000),
        "shared": rating(machine=other, shared=True, at="2026-01-01", rated=90_000),
        "shared, less": rating(machine=other, shared=True, at="2027-01-01", rated=80_000),
        "delivery": rating(what="delivery"),
    }
    ratings = {name: read_rating(name, text) for name, text in texts.items()}

    def best() -> str:
        return best_rating(ratings, "gateway", instance="c7g.2xlarge", batch=100)

    for name in ("same", "newer", "older", "other batch", "shared", "shared, less"):
        assert best() == name
        del ratings[name]
    with pytest.raises(ScaleError, match=r"no rating of the retrier \(delivery\)"):
        best_rating(ratings, "retrier", instance=None, batch=100)
    with pytest.raises(ScaleError, match="none at all"):
        best_rating({}, "gateway", instance=None, batch=100)


def test_old_and_shared_ratings_are_warned_of() -> None:
    ratings = {"g.json": read_rating("g.json", rating(shared=True))}
    old = warnings_of(ratings, ["g.json"], date(2026, 12, 24))
    assert old[0].startswith("g.json is 31 days old, of commit abc1234: rate it again")
    assert "too low" in old[1]
    fresh = {"g.json": read_rating("g.json", rating())}
    assert warnings_of(fresh, ["g.json"], date(2026, 12, 23)) == []
