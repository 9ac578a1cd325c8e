"""Beside tenants at their worst, nothing of Hifi ends, and all of a neighbour's events arrive.

The delays are measured by test_worst_neighbour.py, which runs for a long time.
"""

import pytest

from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.neighbours.kinds import KINDS
from tests.support.neighbours.neighbour import neighbour
from tests.support.neighbours.processes import watched
from tests.support.neighbours.site import site_of
from tests.support.neighbours.worst_process import worst_process
from tests.support.neighbours.worst_tenant import unproven

# Three processes start in turn beside whatever else the machine does.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def test_a_neighbours_events_come_beside_bodies_and_answers_that_never_end(
    hifi: RunningHifi,
) -> None:
    """No keys are required here: all are one tenant, which makes it harder."""
    with neighbour(site_of(hifi.stack, "beside"), hifi.kafka) as beside:
        for kind in ("bodies", "reports"):
            site = site_of(hifi.stack, f"beside-{kind}")
            with watched(hifi.stack) as seen, worst_process(KINDS[kind], site) as worst:
                worst.go()
                wait_until(
                    lambda: not unproven(KINDS[kind], worst.look()),  # noqa: B023 - at once
                    what=lambda: f"lacking: {unproven(KINDS[kind], worst.look())}",  # noqa: B023
                )
                worst.stop()
            assert seen.gone == []
        assert beside.waited_for() == {}
        assert len(beside.acknowledged) > 0
