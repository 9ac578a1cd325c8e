"""Names of archived objects, the objects that count, and gaps between them."""

import pytest
from msgspec import structs

from shared.proof.archived import (
    ArchivedObject,
    ArchiveId,
    by_time,
    continues,
    day_of,
    gaps,
    is_manifest,
    laid,
    life_in,
    manifest_beside,
    may_hold,
)
from shared.proof.intervals import Offsets

DAY_MS = 86_400_000
AT_MS = 1_795_500_000_000


def made(first: int, end: int, *, partition: int = 0, from_ms: int = AT_MS) -> ArchivedObject:
    return ArchivedObject(
        tenant="acme",
        stream="orders",
        archive="orders-kept",
        partition=partition,
        first=first,
        end=end,
        count=end - first,
        size=10,
        sha256="00",
        from_ms=from_ms,
        to_ms=from_ms,
        event_from_ms=from_ms,
        event_to_ms=from_ms,
        document="d",
        is_whole=True,
    )


def test_the_oldest_goes_first_and_those_of_each_partition_in_their_order() -> None:
    # The clock of a new leader is behind.
    ahead, behind = made(0, 10, from_ms=5_000), made(10, 20, from_ms=1_000)
    others = [made(0, 5, partition=1, from_ms=500), made(5, 9, partition=1, from_ms=7_000)]
    found = [each.archived for each in by_time(laid([behind, *others, ahead]))]
    assert found == [others[0], ahead, behind, others[1]]
    assert list(by_time([])) == []


def test_an_object_is_called_by_day_partition_and_range_below_its_own_tenant() -> None:
    one = made(5, 12, partition=3)
    place = f"date={day_of(AT_MS)}/partition=3/{5:020d}-{12:020d}"
    root = "acme/streams/orders/archive=orders-kept"
    assert one.path == f"{root}/events/{place}.parquet"
    assert one.manifest_path == f"{root}/manifest/{place}.json"
    assert manifest_beside(one.id, one.path) == one.manifest_path
    for other in (f"{root}/events/notes.parquet", f"{root}/events/{place}.json"):
        assert manifest_beside(one.id, other) is None
    assert is_manifest(one.manifest_path)
    assert not is_manifest(one.path)
    assert one.id == ArchiveId("acme", "orders", "orders-kept")
    assert ArchivedObject.from_json(one.to_json()) == one


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "may"),
    [
        (None, None, True),
        (AT_MS - DAY_MS, AT_MS + DAY_MS, True),
        (AT_MS + 2 * DAY_MS, None, True),
        (AT_MS + 20 * DAY_MS, None, False),
        (None, AT_MS - 2 * DAY_MS, False),
    ],
)
def test_days_that_cannot_hold_a_time_are_not_looked_at(
    from_ms: int | None, to_ms: int | None, *, may: bool
) -> None:
    assert may_hold(made(0, 1).path, from_ms=from_ms, to_ms=to_ms) is may


def test_what_has_no_day_is_none_of_ours() -> None:
    assert not may_hold("acme/streams/orders/readme.txt", from_ms=None, to_ms=None)


def test_each_offset_counts_once_wherever_ranges_overlap() -> None:
    objects = [made(10, 20), made(0, 10), made(5, 15), made(12, 30), made(6, 9)]
    objects.append(made(0, 4, partition=1))
    found = [(it.archived.partition, it.from_offset, it.archived.end) for it in laid(objects)]
    assert found == [(0, 0, 10), (0, 10, 15), (0, 15, 20), (0, 20, 30), (1, 0, 4)]


def test_what_no_object_is_about_is_a_gap() -> None:
    objects = [made(0, 10), made(15, 20), made(7, 9, partition=1)]
    assert gaps(objects) == {0: Offsets.of([(10, 15)])}


def paths(*objects: ArchivedObject) -> list[str]:
    return [each.manifest_path for each in objects]


def test_a_life_goes_on_where_another_ends_or_was_cut_off() -> None:
    before = paths(made(3, 10), made(10, 20), made(0, 5, partition=1))
    assert continues(paths(made(20, 25), made(5, 9, partition=1)), before)
    assert continues(paths(made(10, 20), made(20, 25)), before), "a range that was repeated"
    assert not continues(paths(made(0, 25), made(5, 9, partition=1)), before)
    assert not continues(paths(made(3, 10)), before), "the range is complete from its beginning"
    assert not continues(paths(made(15, 25)), before)
    assert not continues(paths(made(0, 25, partition=2)), before)
    assert not continues([], before)


def test_each_life_is_below_its_archive() -> None:
    one = structs.replace(made(5, 12), life="kJ9_-q")
    assert one.id == ArchiveId("acme", "orders", "orders-kept", "kJ9_-q")
    assert one.path.startswith(f"{made(5, 12).id.root}/life=kJ9_-q/events/")
    assert ArchivedObject.from_json(one.to_json()) == one
    assert life_in(f"{one.id.root}/") == "kJ9_-q"
    assert life_in(one.id.manifests) is None
    told = one.to_json().replace(b'"life":"kJ9_-q",', b"")
    assert ArchivedObject.from_json(told) == made(5, 12), "the first form of the record"
