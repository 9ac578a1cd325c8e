"""Evidence from parts equals evidence from the whole, and unreadable evidence proves nothing."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from observe.audit.evidence import Claim, Evidence, life
from shared.event.envelope import DESTINATION, ORIGIN_OFFSET, ORIGIN_PARTITION, ORIGIN_TOPIC
from shared.proof.acked import AckedRow, AckedSlice
from shared.proof.intervals import Offsets
from tests.support.suite.samples import layers_of
from tests.unit.observe.test_progress import DELIVERED, WAITING, a_receipt

TOPIC = "hifi.stream.orders"
M0 = 1_699_999_980_000

spans = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 6)).map(lambda s: (s[0], s[0] + s[1])), max_size=8
)


def a_row(first: int, count: int, partition: int = 0, minute: int = M0) -> bytes:
    ids = tuple(f"e{n}" for n in range(count))
    one = AckedSlice(first, ((count, minute),), minute + first)
    return AckedRow(TOPIC, partition, (one,), ids).to_bytes()


def headers(offset: int) -> tuple[tuple[str, bytes], ...]:
    return (
        (DESTINATION, b"orders/shop"),
        (ORIGIN_TOPIC, TOPIC.encode()),
        (ORIGIN_PARTITION, b"0"),
        (ORIGIN_OFFSET, b"%d" % offset),
    )


def test_claims_that_follow_each_other_are_one_whatever_stands_between() -> None:
    evidence = Evidence()
    for at, (first, count, partition, minute) in enumerate(
        [(0, 3, 0, M0), (7, 2, 1, M0), (3, 4, 0, M0), (7, 1, 0, M0 + 60_000), (9, 1, 0, M0)]
    ):
        evidence.take_ledger(a_row(first, count, partition, minute), partition=1, offset=at)
    assert evidence.claims == [
        Claim(TOPIC, 0, M0, 0, 7, M0 + 3, (1, 0, 2)),
        Claim(TOPIC, 1, M0, 7, 9, M0 + 7, (1, 1, 1)),
        Claim(TOPIC, 0, M0 + 60_000, 7, 8, M0 + 60_007, (1, 3, 3)),
        Claim(TOPIC, 0, M0, 9, 10, M0 + 9, (1, 4, 4)),
    ]


def test_parts_merge_to_the_whole() -> None:
    whole, merged = Evidence(), Evidence()
    for half in range(2):
        part = Evidence()
        for one in (whole, part):
            one.take_ledger(a_row(half * 5, 5), partition=0, offset=half)
            one.take_sheet(a_receipt(DELIVERED, half * 4, half * 4 + 4).to_json())
            one.take_sheet(a_receipt(WAITING, 3, 9).to_json())
            one.take_record("dead", headers(half))
            one.take_record("dead", headers(7))
            one.take_sheet(b"torn")
        merged.merge(msgspec.msgpack.decode(msgspec.msgpack.encode(part), type=Evidence))
    assert merged.claims == whole.claims
    assert merged.outcomes == whole.outcomes
    assert list(merged.records["dead", "orders/shop", TOPIC, 0]) == [(0, 2), (7, 8), (7, 8)]
    assert merged.records == whole.records
    assert merged.unreadable == whole.unreadable == {"receipt": 2}


def test_what_is_said_after_a_re_drive_is_known_as_that() -> None:
    evidence = Evidence()
    evidence.take_sheet(a_receipt(WAITING, 0, 5).to_json())
    evidence.take_sheet(replace(a_receipt(WAITING, 2, 4), redrive_count=1).to_json())
    assert evidence.outcomes == {
        ("orders/shop", "waiting", TOPIC, 0): Offsets.of([(0, 5)]),
        ("orders/shop", life("waiting", 1), TOPIC, 0): Offsets.of([(2, 4)]),
    }


def test_a_torn_receipt_spoils_no_other_on_its_sheet() -> None:
    evidence = Evidence()
    evidence.take_sheet(b"{\n" + a_receipt(WAITING, 0, 5).to_json())
    assert evidence.unreadable == {"receipt": 1}
    assert evidence.outcomes == {("orders/shop", "waiting", TOPIC, 0): Offsets.of([(0, 5)])}


def test_what_cannot_be_read_is_counted_and_proves_nothing() -> None:
    evidence = Evidence()
    evidence.take_ledger(b"{", partition=0, offset=0)
    evidence.take_sheet(b"no")
    evidence.take_record("dead", headers(3)[:3])
    evidence.take_record("dead", (*headers(3)[:3], (ORIGIN_OFFSET, b"x")))
    assert evidence == Evidence(unreadable={"ledger": 1, "receipt": 1, "dead": 2})


@given(spans, spans, spans)
def test_layers_count_how_often_each_offset_is_in(
    put: list[tuple[int, int]], taken: list[tuple[int, int]], gone: list[tuple[int, int]]
) -> None:
    times = dict.fromkeys(range(30), 0)
    for first, end in put:
        for offset in range(first, end):
            times[offset] += 1
    layers = layers_of(put)
    for first, end in taken:
        layers.remove(first, end)
        for offset in range(first, end):
            times[offset] = max(0, times[offset] - 1)
    assert {o for o, count in times.items() if count} == {
        o for first, end in layers.present for o in range(first, end)
    }
    assert sum(end - first for first, end in layers) == sum(times.values())
    assert layers_of(layers) == layers
    layers.forget(Offsets.of(gone))
    left = {o for o, count in times.items() if count} - {
        o for first, end in gone for o in range(first, end)
    }
    assert left == {o for first, end in layers.present for o in range(first, end)}
