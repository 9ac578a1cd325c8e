"""The connection to close when there is no room: the longest idle one of the largest crowd."""

import resource
from dataclasses import dataclass, field

import pytest

from shared.runtime.serving.crowd import Crowd, connections_max


@dataclass(eq=False)
class FakeConnection:
    closes_at_s: float | None = None
    closed: list[bool] = field(default_factory=list)

    def close(self) -> None:
        self.closed.append(True)


def filled(crowd: Crowd, address: str, *closes_at_s: float | None) -> list[FakeConnection]:
    made = [FakeConnection(at_s) for at_s in closes_at_s]
    assert all(crowd.enter(one, address) for one in made)
    return made


def test_the_first_to_be_closed_of_the_largest_crowd_goes() -> None:
    crowd = Crowd(6)
    small = filled(crowd, "10.0.0.1", 1.0, 2.0)
    large = filled(crowd, "10.0.0.2", 9.0, 7.0, None, 8.0)
    filled(crowd, "10.0.0.3", 5.0)
    assert [bool(one.closed) for one in large] == [False, True, False, False]
    assert not any(one.closed for one in small)
    assert crowd.count == 6


def test_where_the_largest_is_at_work_the_next_one_gives_way() -> None:
    crowd = Crowd(3)
    (idle,) = filled(crowd, "10.0.0.1", 1.0)
    filled(crowd, "10.0.0.2", None, None)
    filled(crowd, "10.0.0.2", None)
    assert idle.closed
    assert not crowd.enter(FakeConnection(1.0), "10.0.0.9"), "all connections are busy"


def test_who_leaves_makes_room_and_who_never_entered_does_not() -> None:
    crowd = Crowd(1)
    (one,) = filled(crowd, "10.0.0.1", None)
    refused = FakeConnection()
    assert not crowd.enter(refused, "10.0.0.1")
    crowd.leave(refused, "10.0.0.1")
    assert crowd.count == 1
    crowd.leave(one, "10.0.0.1")
    assert crowd.count == 0
    filled(crowd, "10.0.0.1", 1.0)


def test_many_are_closed_at_a_time_as_finding_them_costs_a_look_at_each() -> None:
    crowd = Crowd(640)
    made = filled(crowd, "10.0.0.1", *map(float, range(640)))
    filled(crowd, "10.0.0.1", 700.0)
    assert [bool(one.closed) for one in made] == [number < 10 for number in range(640)]


@pytest.mark.parametrize(
    ("others", "is_one"),
    [
        ("2001:db8:0:1::2", True),
        ("2001:db8:0:1:ffff::%eth0", True),
        ("2001:db8:0:2::1", False),
        ("::ffff:10.0.0.1", False),
    ],
)
def test_a_household_has_one_network_of_ipv6(others: str, *, is_one: bool) -> None:
    crowd = Crowd(3)
    (mapped,) = filled(crowd, "10.0.0.1", 1.0)
    (first,) = filled(crowd, "2001:db8:0:1::1", 5.0)
    filled(crowd, others, 6.0)
    filled(crowd, "192.0.2.1", 9.0)
    # Where nobody has more than others, the oldest connection is closed.
    assert (bool(first.closed), bool(mapped.closed)) == (is_one, not is_one)


FREE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "wanted", "given", "raised"),
    [
        ((1_024, 1_048_576), 8_192, 8_192, 8_448),
        ((1_024, 4_096), 8_192, 3_840, 4_096),
        ((65_536, 65_536), 8_192, 8_192, None),
        ((1_024, FREE), 8_192, 8_192, 8_448),
        ((FREE, FREE), 8_192, 8_192, None),
        ((100, 100), 8_192, 1, 100),
    ],
)
def test_no_more_are_held_than_the_machine_lets_us_open(
    monkeypatch: pytest.MonkeyPatch,
    limits: tuple[int, int],
    wanted: int,
    given: int,
    raised: int | None,
) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, changed: told.append(changed))
    assert connections_max(wanted) == given
    assert told == ([] if raised is None else [(raised, limits[1])])
