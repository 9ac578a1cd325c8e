"""Slots are shared evenly, few of them move, and none ever has two owners."""

from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.slots import SLOT_COUNT, may_have, shares, slot_of, spelled

Owned = Mapping[str, Collection[int]]


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, set[int]], int]:
    """Draw members with slots, however uneven, and the number of slots."""
    slot_count = draw(st.integers(1, SLOT_COUNT))
    members = draw(st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, unique=True))
    owners = draw(
        st.lists(st.sampled_from([*members, None]), min_size=slot_count, max_size=slot_count)
    )
    return {m: {s for s, who in enumerate(owners) if who == m} for m in members}, slot_count


def step(owned: Owned, slot_count: int) -> dict[str, frozenset[int]]:
    """Return the slots that each holds when all have done their part."""
    return dict(may_have(owned, slot_count))


@given(groups())
def test_shares_are_even_and_complete(group: tuple[Owned, int]) -> None:
    owned, slot_count = group
    shared = shares(owned, slot_count)
    sizes = {len(slots) for slots in shared.values()}
    assert max(sizes) - min(sizes) <= 1
    assert sorted(s for slots in shared.values() for s in slots) == list(range(slot_count))


@given(groups())
def test_no_slot_has_two_owners_while_it_moves(group: tuple[Owned, int]) -> None:
    owned, slot_count = group
    given_now = may_have(owned, slot_count)
    for member, slots in given_now.items():
        for other in owned.keys() - {member}:
            assert not slots & set(owned[other])
            assert not slots & given_now[other]


@given(groups())
def test_it_settles_in_two_steps_and_stays(group: tuple[Owned, int]) -> None:
    owned, slot_count = group
    twice = step(step(owned, slot_count), slot_count)
    assert sum(map(len, twice.values())) == slot_count
    assert step(twice, slot_count) == twice


@given(groups())
def test_no_more_slots_move_than_must(group: tuple[Owned, int]) -> None:
    owned, slot_count = group
    each, odd = divmod(slot_count, len(owned))
    most = sorted(map(len, owned.values()), reverse=True)
    kept_most = sum(min(size, each + (rank < odd)) for rank, size in enumerate(most))
    kept = sum(len(slots & set(owned[m])) for m, slots in shares(owned, slot_count).items())
    assert kept == kept_most


def test_fifty_members_share_128_slots_and_a_change_moves_a_share() -> None:
    names = [f"m{n:02}" for n in range(50)]
    all_of_them = step(dict.fromkeys(names, frozenset[int]()), SLOT_COUNT)
    assert {len(slots) for slots in all_of_them.values()} == {2, 3}
    one_died = {name: slots for name, slots in all_of_them.items() if name != "m00"}
    after = step(one_died, SLOT_COUNT)
    assert sum(len(after[m] - one_died[m]) for m in after) == len(all_of_them["m00"])
    assert all(one_died[m] <= after[m] for m in after)
    one_more = step(all_of_them | {"new": frozenset()}, SLOT_COUNT)
    assert not one_more["new"]
    settled = step(one_more, SLOT_COUNT)
    assert sum(len(settled[m] - all_of_them[m]) for m in names) == 0
    assert len(settled["new"]) == 2


def test_what_two_claim_is_given_to_nobody_until_both_have_given_it_up() -> None:
    owned = {"a": {0, 1}, "b": {1}}
    told = may_have(owned, 3)
    assert told == {"a": {0}, "b": {2}}
    assert may_have(told, 3) == {"a": {0, 1}, "b": {2}}


def test_what_is_beyond_the_slots_is_not_kept() -> None:
    assert may_have({"a": {0, 7}}, 2) == {"a": {0, 1}}


@given(groups(), st.data())
def test_who_leaves_gets_nothing_and_what_it_gave_up_is_shared_by_the_others(
    group: tuple[dict[str, set[int]], int], data: st.DataObject
) -> None:
    owned, slot_count = group
    leaves = data.draw(st.sampled_from(sorted(owned)))
    kept = owned[leaves]
    gone = set(data.draw(st.sets(st.sampled_from(sorted(kept))))) if kept else set[int]()
    others = {member: slots for member, slots in owned.items() if member != leaves}
    now = owned | {leaves: (kept - gone) | {slot_count}}
    told = step(now, slot_count)
    assert not told[leaves]
    if others:
        # Slots that a leaving member still holds already have new owners, who do not start them
        # yet.
        assert {m: told[m] for m in others} == {
            m: slots - (kept - gone) for m, slots in step(others, slot_count).items()
        }


def test_nobody_shares_nothing() -> None:
    assert may_have({}, 4) == {}


# All sharing depends on a name's slot, on machines of this version and of the next.
@pytest.mark.parametrize(("name", "slot"), [("s/d", 55), ("", 0), ("ström/ziel", 118)])
def test_a_name_has_its_slot_for_ever(name: str, slot: int) -> None:
    assert slot_of(name) == slot


@pytest.mark.parametrize(
    ("slots", "text"),
    [
        (range(SLOT_COUNT), "0-127"),
        ({7}, "7"),
        ({9, 3, 1, 2, 8, 5}, "1-3, 5, 8-9"),
        ((), ""),
    ],
)
def test_a_person_reads_ranges(slots: Collection[int], text: str) -> None:
    assert spelled(slots) == text
