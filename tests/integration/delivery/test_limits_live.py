"""Destinations with limits that Hifi has not been told get nearly all that they can take."""

import threading
import time
from dataclasses import dataclass, field

import pytest

from shared.config.destination import Destination
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.servers.scripted_destination import Reply, Request, scripted_destination

pytestmark = pytest.mark.integration

ANSWER_S = 0.1
# The time within which the limit is found.
FIND_S = 10
# Shares of the rate at a known limit. Beside other tests, answers are sometimes late, which lowers
# a limit; with a limit that is not found, the share is 0.05 (ADR 0040).
ALONE, BESIDE_OTHERS = 0.85, 0.4


@dataclass
class AtOnce:
    """A destination that takes `limit` requests at once, and immediately refuses more."""

    limit: int
    status: int
    busy: int = 0
    answers: list[tuple[float, bool]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, _: int, __: Request) -> Reply:
        with self.lock:
            is_taken = self.busy < self.limit
            self.busy += is_taken
            self.answers.append((time.monotonic(), is_taken))
        if not is_taken:
            return Reply(self.status)
        time.sleep(ANSWER_S)
        with self.lock:
            self.busy -= 1
        return Reply()

    def since(self, begun_s: float) -> tuple[int, int]:
        """Return how many requests it has taken and refused since then."""
        late = [is_taken for at_s, is_taken in self.answers if at_s >= begun_s]
        return sum(late), len(late) - sum(late)


def gets_nearly_all(
    hifi: RunningHifi,
    stream: str,
    limit: int,
    status: int,
    *,
    seconds: int,
    share: float,
    parallel_max: int = 4,
) -> None:
    """Check that Hifi reaches `share` of its rate with a known limit, measured at the same time."""
    found, told = AtOnce(limit, status), AtOnce(limit, status)
    could = round(seconds * limit / ANSWER_S)
    ids = [{"id": f"{number}"} for number in range(could)]
    with scripted_destination(found) as one, scripted_destination(told) as other:
        hifi.add(Destination(stream, "to", one.url, batch_count_max=1, parallel_max=parallel_max))
        hifi.add(
            Destination(f"{stream}-told", "to", other.url, batch_count_max=1, parallel_max=limit)
        )
        for at in range(0, could, 500):
            for each in (stream, f"{stream}-told"):
                assert hifi.post(each, ids[at : at + 500]).status_code == 200
        wait_until(lambda: bool(found.answers and told.answers), what="each has its first request")
        begun_s = max(found.answers[0][0], told.answers[0][0])
        time.sleep(seconds)
        taken, _ = found.since(begun_s)
        as_told, _ = told.since(begun_s)
        late_taken, late_refused = found.since(begun_s + FIND_S)
    assert as_told >= could / 10, "the machine is too busy to tell"
    assert taken >= share * as_told
    assert late_refused < 0.05 * (late_taken + late_refused)


@pytest.mark.parametrize(
    ("stream", "share"),
    [
        ("two", BESIDE_OTHERS),
        pytest.param("two-alone", ALONE, marks=pytest.mark.long),
    ],
)
def test_two_at_once_with_the_usual_settings(hifi: RunningHifi, stream: str, share: float) -> None:
    gets_nearly_all(hifi, stream, 2, 503, seconds=30, share=share)


@pytest.mark.long
@pytest.mark.parametrize("status", [429, 503])
def test_five_at_once_of_sixteen_over_a_minute(hifi: RunningHifi, status: int) -> None:
    gets_nearly_all(hifi, f"five{status}", 5, status, seconds=60, share=ALONE, parallel_max=16)
