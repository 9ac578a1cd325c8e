"""Real Locust, a real server: every way to run a step gives the same JSON with the same figures."""

import re
from pathlib import Path

import pytest

from tests.support.deploy.locust_runs import locust
from tests.support.servers.rated_server import running_rated_server

SHORT = ("--rate", "100", "--batch", "1", "--duration", "2s", "--warm-up", "1s", "--seed", "3")


@pytest.mark.integration
def test_one_process_and_many_give_the_same_json(tmp_path: Path) -> None:
    """Issue 16, A7 and A9. On busy cores Locust may be late, and says so; figures are the same."""
    with running_rated_server() as host:
        alone = locust(tmp_path, host, *SHORT)
        many = locust(tmp_path, host, *SHORT, "--processes", "2")
    assert set(alone) == set(many)
    assert (alone["workers"], many["workers"]) == (1, 2)
    for found in (alone, many):
        # Each moment comes from the seed; a worker that is 5 s late gives up the rest.
        assert 0 < found["offered"] <= 245
        assert found["sent"] == found["offered"]
        assert found["answers"] == {"200": found["sent"]}
        acked = sum(end - first for _, ranges in found["acked"] for first, end in ranges)
        assert acked >= found["acked_events"] == found["sent"]
        assert found["verdict"] in {"met", "broken", "invalid"}
    # Locust's own line: requests, failures, and the percentiles with its two digits.
    shown = re.findall(r"^POST +\S+ +(\d+) +0\(", alone["said"], re.MULTILINE)
    assert shown == [str(alone["sent"])]
    table = re.findall(
        r"^POST +\S+ +(\d+) +.*?(\d+) +\d+ +\d+ +\d+ +\d+\n", alone["said"], re.MULTILINE
    )
    assert abs(float(table[-1][0]) - alone["due_ms"]["p50"]) <= 2 + 0.25 * alone["due_ms"]["p50"]


@pytest.mark.integration
def test_what_is_wrong_is_said_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="loadtests: 'leap' is not a part of a plan"):
        locust(tmp_path, "http://127.0.0.1:9", "--plan", "leap")
