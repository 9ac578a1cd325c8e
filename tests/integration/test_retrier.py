"""The retrier in the whole of Hifi: what may change, break or be wrong while events wait."""

from dataclasses import replace

import pytest

from shared.destination import Destination
from tests.scripted_destination import Reply, Request, scripted_destination
from tests.stack_fixtures import PATIENCE_S, RunningHifi, fetch

pytestmark = pytest.mark.integration


def fail_first(_: int, request: Request) -> Reply:
    return Reply(503 if request.headers["hifi-attempt"] == "1" else 200)


def retrier_metric(hifi: RunningHifi, name: str) -> float:
    """A number from the retrier's page; 0 while nothing was counted."""
    page = fetch(f"http://127.0.0.1:{hifi.stack.settings.retrier_metrics_port}/metrics")
    lines = [line for line in page.splitlines() if line.startswith(name + " ")]
    return float(lines[0].split()[1]) if lines else 0.0


def lane_starts(hifi: RunningHifi) -> int:
    log = hifi.stack.settings.folder / "logs" / "retrier.log"
    return log.read_text().count("lane.started")


def test_a_mended_address_rescues_what_waits_and_restarts_nothing(hifi: RunningHifi) -> None:
    starts = lane_starts(hifi)
    with scripted_destination(fail_first) as right:
        nobody = "http://127.0.0.1:9/"
        to = Destination(stream="mended", name="to", url=nobody)
        hifi.add(to)
        assert hifi.post("mended", [{"id": f"e{n}"} for n in range(20)]).status_code == 200
        hifi.wait_for_balance("mended/to", lambda b: b.waiting == 20, what="20 waiting")
        hifi.change(replace(to, url=right.url))
        assert right.wait_for(lambda: len(right.accepted_ids) == 20, timeout_s=PATIENCE_S)
        hifi.wait_for_balance("mended/to", lambda b: b.delivered == 20, what="20 delivered")
        assert max(right.accepted_ids.values()) == 1
    assert lane_starts(hifi) == starts
    assert hifi.balance("mended/to").unaccounted == 0


def test_what_waits_for_a_removed_destination_rests_with_that_reason(hifi: RunningHifi) -> None:
    to = Destination(stream="removed", name="to", url="http://127.0.0.1:9/")
    hifi.add(to)
    assert hifi.post("removed", [{"id": f"e{n}"} for n in range(5)]).status_code == 200
    hifi.wait_for_balance("removed/to", lambda b: b.waiting == 5, what="5 waiting")
    hifi.remove_added()
    hifi.wait_for_balance("removed/to", lambda b: b.dead == 5, what="5 dead")
    dead = [dict(one.headers) for one in hifi.dead_letters("removed/to")]
    assert {one["reason"] for one in dead} == {b"destination_gone"}
    assert {one["event-id"] for one in dead} == {f"e{n}".encode() for n in range(5)}
