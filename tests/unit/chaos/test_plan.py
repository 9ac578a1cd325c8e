"""The plan of a chaos run follows from its seed alone, and contains every kind of trouble."""

import pytest

from tests.chaos.actions import CHANGES, KINDS, ROUND_S
from tests.chaos.customers import Customers
from tests.chaos.plan import chaos_plan


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_gives_the_same_plan_and_another_one_another(seed: int) -> None:
    assert str(chaos_plan(seed, minutes=5)) == str(chaos_plan(seed, minutes=5))
    assert chaos_plan(seed, minutes=5) != chaos_plan(seed + 1, minutes=5)


def test_every_kind_of_action_comes_within_twenty_seeds_of_three_minutes() -> None:
    planned = [action.kind for seed in range(20) for action in chaos_plan(seed, minutes=3).actions]
    assert set(planned) == set(KINDS)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_done_to_something_finds_it_there(seed: int) -> None:
    # Tenants, streams, and destinations, each with its stream.
    there: set[str] = set()
    for action in chaos_plan(seed, minutes=5).actions:
        what, _, rest = action.kind.partition(" ")
        kind = rest.removeprefix("late ").removeprefix("picky ")
        destination = f"{action.stream}/{action.name}"
        about = {
            "tenant": [action.tenant],
            "key": [action.tenant],
            "stream": [action.tenant, action.stream],
            "destination": [action.tenant, action.stream, destination],
        }.get(kind, [])
        if what in {"make", "remake"}:
            there.add(about[-1])
        assert there.issuperset(about), action
        if what == "remove":
            there.remove(about[-1])


def test_customers_can_do_every_change() -> None:
    assert [kind for kind in CHANGES if not hasattr(Customers, kind.replace(" ", "_"))] == []


def test_every_third_seed_has_three_brokers_unless_somebody_says_otherwise() -> None:
    assert [chaos_plan(seed, minutes=1).brokers for seed in range(4)] == [3, 1, 1, 3]
    assert chaos_plan(3, minutes=1, brokers=1).brokers == 1


def test_a_round_is_over_when_its_time_is() -> None:
    for seed in range(20):
        for actions in chaos_plan(seed, minutes=5).rounds:
            assert all(action.at_s + action.for_s <= ROUND_S for action in actions)
            assert [action.at_s for action in actions] == sorted(a.at_s for a in actions)


def test_the_minutes_say_how_many_rounds_there_are() -> None:
    assert len(chaos_plan(1, minutes=2).rounds) == 3
    assert len(chaos_plan(1, minutes=0.1).rounds) == 1
