"""Says which of the slots each member of a group is to have, and which of them it may begin.

Each thing that is shared out has a name, and a name has one slot. The leader of the group computes
this from the slots that each member says it still holds, so a slot moves in two steps: its holder
is asked to give it up, and it has a new owner only when nobody holds it any more.
"""

import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import chain, groupby, islice
from typing import TypeAlias

# Keyed by member.
Slots: TypeAlias = Mapping[str, frozenset[int]]

# As many machines can share the lanes, and each has its part to within one slot: of 50 machines
# none has more than 3. A slot costs nothing but its number in an assignment.
SLOT_COUNT = 128


def slot_of(name: str, slot_count: int = SLOT_COUNT) -> int:
    """The slot of a name: the same for everybody, forever."""
    return zlib.crc32(name.encode()) % slot_count


def shares(held: Mapping[str, Collection[int]], slot_count: int) -> Slots:
    """The slots of each member in the end, from those they hold now: even, and few slots move.

    A member that says it holds the slot behind the last one is to have none: it leaves.
    """
    claims = _claims(held)
    stay = [member for member in held if slot_count not in held[member]]
    each, odd = divmod(slot_count, max(len(stay), 1))
    # The member with the most comes first, and so has one of the odd slots: one less has to move.
    members = sorted(stay, key=lambda member: (-len(held[member]), member))
    sizes = {member: each + (rank < odd) for rank, member in enumerate(members)}
    kept = {
        member: sorted(slot for slot in held[member] if slot < slot_count and claims[slot] == 1)
        for member in members
    }
    kept = {member: kept[member][:size] for member, size in sizes.items()}
    free = iter(sorted(set(range(slot_count)).difference(*kept.values())))
    return dict.fromkeys(held, frozenset[int]()) | {
        member: frozenset([*kept[member], *islice(free, size - len(kept[member]))])
        for member, size in sizes.items()
    }


def may_have(held: Mapping[str, Collection[int]], slot_count: int) -> Slots:
    """The slots of its share that each member may work on now: those that no other member holds."""
    claims = _claims(held)
    return {
        member: frozenset(slot for slot in share if claims[slot] == (slot in held[member]))
        for member, share in shares(held, slot_count).items()
    }


def spelled(slots: Iterable[int]) -> str:
    """Slots as a person reads them: 0-63, 65."""
    # Within a run of consecutive slots, a slot minus its rank is always the same.
    ranked = groupby(enumerate(sorted(slots)), lambda pair: pair[1] - pair[0])
    runs = [[slot for _, slot in run] for _, run in ranked]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _claims(held: Mapping[str, Collection[int]]) -> Counter[int]:
    """How many members say that they hold each slot."""
    return Counter(chain.from_iterable(map(frozenset, held.values())))
