"""A short chaos run finds nothing, and each fault that is put into one by hand is found."""

from pathlib import Path
from typing import get_args

import pytest

from tests.chaos.campaign import run_campaign
from tests.chaos.plan import chaos_plan
from tests.chaos.put_in import FOUND_AS, PutIn
from tests.chaos.run_log import RunLog

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]

# This seed has one broker, a recreated stream, a destination that refuses some events slowly, and
# one that is removed while events are due to it.
SEED = 4


def test_a_short_seed_is_as_promised(tmp_path: Path) -> None:
    plan = chaos_plan(SEED, minutes=1)
    campaign = run_campaign(plan, folder=tmp_path / "world", log=RunLog(tmp_path / "log"))
    assert campaign.found == []
    # The recount had something to count.
    assert campaign.owed


@pytest.mark.parametrize("fault", get_args(PutIn))
def test_a_fault_that_is_put_in_is_found(fault: PutIn, tmp_path: Path) -> None:
    plan = chaos_plan(SEED, minutes=0.5)
    log = RunLog(tmp_path / "log")
    campaign = run_campaign(plan, folder=tmp_path / "world", log=log, fault=fault)
    found = {finding.what for finding in campaign.found}
    assert FOUND_AS[fault][0] in found
    assert found <= set(FOUND_AS[fault])
