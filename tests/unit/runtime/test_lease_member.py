"""What a member says of its slots, without a Kafka; tests/integration/runtime has the rest."""

import asyncio

from structlog.testing import capture_logs

from shared.runtime.kafka.leases.member import LeaseMember
from shared.slots import SLOT_COUNT
from tests.support.lease_members import NotedWork

ALL = frozenset(range(SLOT_COUNT))


def test_what_is_held_is_told_in_ranges() -> None:
    """All 128 numbers, each time that a group changes, would hide what else is told."""

    async def scenario() -> None:
        member = LeaseMember("kafka:1", "hifi.leases.s", NotedWork("a", [], drain_s=0.0))
        member._take(ALL, frozenset())
        member._take(ALL - {0, 5}, ALL)
        await asyncio.gather(*member._tasks)
        member._let_go("it was frozen")

    with capture_logs() as logs:
        asyncio.run(scenario())
    assert [(each["event"], each["slots"]) for each in logs] == [
        ("lease.begun", "0-127"),
        ("lease.given_up", "0, 5"),
        ("lease.lost", "1-4, 6-127"),
    ]
