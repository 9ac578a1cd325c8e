"""Assigns slots to the members of a group, and says which of them each member may use now.

Each shared item has a name, and each name maps to one slot. The leader of the group computes the
assignment from the slots that members report they own. A slot moves in two steps: its owner is
asked to release it, and it gets a new owner only when nobody owns it any more.
"""

import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import chain, groupby, islice
from typing import TypeAlias

# Keyed by member.
Slots: TypeAlias = Mapping[str, frozenset[int]]

# Up to 128 machines can share the lanes, and their shares differ by one slot at most: with 50
# machines none has more than 3. A slot costs only its number in an assignment.
SLOT_COUNT = 128


def slot_of(name: str, slot_count: int = SLOT_COUNT) -> int:
    """Return the slot of a name: the same in every process, forever."""
    return zlib.crc32(name.encode()) % slot_count


def shares(owned: Mapping[str, Collection[int]], slot_count: int) -> Slots:
    """Return each member's final slots, given those owned now: an even share, with few moves.

    A member that reports the slot after the last one is leaving, and gets no slots.
    """
    claims = _claims(owned)
    stay = [member for member in owned if slot_count not in owned[member]]
    each, odd = divmod(slot_count, max(len(stay), 1))
    # Members with the most slots come first and get the remaining slots, so fewer slots move.
    members = sorted(stay, key=lambda member: (-len(owned[member]), member))
    sizes = {member: each + (rank < odd) for rank, member in enumerate(members)}
    kept = {
        member: sorted(slot for slot in owned[member] if slot < slot_count and claims[slot] == 1)
        for member in members
    }
    kept = {member: kept[member][:size] for member, size in sizes.items()}
    free = iter(sorted(set(range(slot_count)).difference(*kept.values())))
    return dict.fromkeys(owned, frozenset[int]()) | {
        member: frozenset([*kept[member], *islice(free, size - len(kept[member]))])
        for member, size in sizes.items()
    }


def may_have(owned: Mapping[str, Collection[int]], slot_count: int) -> Slots:
    """Return the slots that each member may use now: those of its share that no other owns."""
    claims = _claims(owned)
    return {
        member: frozenset(slot for slot in share if claims[slot] == (slot in owned[member]))
        for member, share in shares(owned, slot_count).items()
    }


def spelled(slots: Iterable[int]) -> str:
    """Write slots for people: 0-63, 65."""
    # In a run of consecutive slots, the slot minus its rank is constant.
    ranked = groupby(enumerate(sorted(slots)), lambda pair: pair[1] - pair[0])
    runs = [[slot for _, slot in run] for _, run in ranked]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _claims(owned: Mapping[str, Collection[int]]) -> Counter[int]:
    """Count the members that report each slot."""
    return Counter(chain.from_iterable(map(frozenset, owned.values())))
