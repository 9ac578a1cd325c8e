"""Leaders move to replicas in sync, and never to a frozen broker."""

from tests.support.kafka.leader_moves import PartitionLeader, moved_orders, preferred_orders


def led(leader: int, replicas: tuple[int, ...], in_sync: set[int]) -> PartitionLeader:
    return PartitionLeader("a", 0, leader, replicas, frozenset(in_sync))


def test_the_next_replica_in_sync_leads_and_is_preferred() -> None:
    one = led(1, (1, 2, 3), {1, 2, 3})
    assert moved_orders([one], ()) == {one: (2, 3, 1)}
    assert moved_orders([one], {2}) == {one: (3, 2, 1)}
    behind = led(3, (1, 2, 3), {2, 3})
    assert moved_orders([behind], ()) == {behind: (2, 1, 3)}


def test_what_has_no_other_leader_stays() -> None:
    assert moved_orders([led(1, (1, 2, 3), {1, 2})], {2}) == {}
    assert moved_orders([led(1, (1,), {1})], ()) == {}


def test_who_is_preferred_leads_again_if_in_sync_and_not_paused() -> None:
    astray = led(2, (1, 2, 3), {1, 2, 3})
    assert preferred_orders([astray, led(1, (1, 2, 3), {1, 2, 3})], ()) == {astray: (1, 2, 3)}
    assert preferred_orders([astray], {1}) == {}
    assert preferred_orders([led(2, (1, 2, 3), {2, 3})], ()) == {}
