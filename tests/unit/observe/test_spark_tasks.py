"""The results of the audit's tasks from the ledger's rows, and the rows that are read together."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from observe.audit.ids.log_ids import LogIds
from observe.audit.spark_job import stretches
from observe.audit.spark_tasks import LoggedRun, MinuteRoots, look, name
from shared.event.derived import VIA
from shared.event.envelope import event_headers
from shared.event.record import KafkaPartition
from shared.event.topics import ACKED
from shared.proof.acked import AckedRow, AckedSlice
from shared.proof.intervals import Offsets
from shared.proof.merkle import merkle_root

TOPIC = "hifi.stream.orders"
M0, M1 = 1_699_999_980_000, 1_700_000_040_000


def a_row(first: int, *runs: tuple[int, int], topic: str = TOPIC) -> bytes:
    count = sum(number for number, _ in runs)
    ids = tuple(f"e{first + at}" for at in range(count))
    return AckedRow(topic, 0, (AckedSlice(first, runs, M0),), ids).to_bytes()


def a_batch(topic: str, *rows: tuple[int, bytes | None]) -> pa.RecordBatch:
    """Return records of one Kafka partition, with their offsets."""
    columns = {
        "topic": pa.array([topic] * len(rows), pa.string()),
        "partition": pa.array([0] * len(rows), pa.int32()),
        "offset": pa.array([offset for offset, _ in rows], pa.int64()),
        "value": pa.array([value for _, value in rows], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


def named(
    *rows: bytes | None,
    minutes: set[int],
    spans: list[tuple[int, int]],
    extra: Any = (),
    log: Any = (),
    compare: Any = (),
) -> MinuteRoots:
    def read_ids(wanted: Mapping[KafkaPartition, Offsets]) -> LogIds:
        assert list(wanted) == ([KafkaPartition(TOPIC, 0)] if compare else [])
        ids = LogIds()
        for records in log:
            ids.take(KafkaPartition(TOPIC, 0), *zip(*records, strict=True))
        return ids

    (part,) = name(
        [a_batch(ACKED, *enumerate(rows))],
        wanted=frozenset((TOPIC, minute) for minute in minutes),
        spans={KafkaPartition(TOPIC, 0): spans} if spans else {},
        extra={(TOPIC, M0): extra},
        compare={(TOPIC, minute): {0: offsets} for minute, offsets in dict(compare).items()},
        read_ids=read_ids,
    )
    return msgspec.msgpack.decode(part.column("part")[0].as_py(), type=MinuteRoots)


def test_a_minute_has_the_ids_of_its_rows_and_of_its_part_of_others() -> None:
    rows = (a_row(0, (3, M0)), a_row(3, (1, M1), (2, M0), (1, M1)), a_row(7, (2, M1)))
    found = named(*rows, minutes={M0}, spans=[])
    assert found.roots == {(TOPIC, M0): (merkle_root(["e0", "e1", "e2", "e4", "e5"]), 5)}
    both = named(*rows, minutes={M0, M1}, spans=[], extra=["from-log"])
    assert both.roots == {
        (TOPIC, M0): (merkle_root(["e0", "e1", "e2", "e4", "e5", "from-log"]), 6),
        (TOPIC, M1): (merkle_root(["e3", "e6", "e7", "e8"]), 4),
    }


def test_single_offsets_are_named_in_the_order_of_the_claims() -> None:
    rows = (a_row(0, (3, M0)), a_row(3, (1, M1), (2, M0)), a_row(4, (1, M1)))
    found = named(*rows, minutes=set(), spans=[(2, 5)])
    assert found.roots == {}
    assert found.ids == {
        (TOPIC, 0, 2): ["e2"],
        (TOPIC, 0, 3): ["e3"],
        (TOPIC, 0, 4): ["e4", "e4"],
    }


def test_ids_of_the_ledger_are_laid_beside_those_of_the_log() -> None:
    rows = (a_row(0, (3, M0)), a_row(3, (1, M1), (2, M0), (1, M1)), a_row(7, (2, M1)))
    # In two parts; offset 4 is empty, and 5 and 7 have other ids. Id 1 is not asked for.
    log = [
        [(0, b"e0"), (1, b"x1"), (2, b"e2"), (3, b"e3")],
        [(5, b"x5"), (6, b"e6"), (7, b"x7"), (8, b"e8")],
    ]
    asked = {M0: [(0, 1), (2, 6)], M1: [(3, 9)]}
    found = named(*rows, minutes={M0, M1}, spans=[], log=log, compare=asked)
    assert found.compared == {(TOPIC, M0): 3, (TOPIC, M1): 4}
    assert found.wrong == {(TOPIC, 0, 5): (M0, "e5"), (TOPIC, 0, 7): (M1, "e7")}
    # No ids are asked for, so nothing is compared.
    assert not named(*rows, minutes={M0, M1}, spans=[], log=log).compared


def test_of_an_offset_that_was_claimed_twice_the_newer_claim_must_be_true() -> None:
    rows = (
        a_row(0, (3, M0)),
        AckedRow(TOPIC, 0, (AckedSlice(1, ((2, M0),), M0),), ("b", "c")).to_bytes(),
    )
    log = [[(0, b"e0"), (1, b"b"), (2, b"e2")]]
    found = named(*rows, minutes={M0}, spans=[], log=log, compare={M0: [(0, 3)]})
    assert found.wrong == {(TOPIC, 0, 2): (M0, "c")}


def test_what_is_no_row_and_what_is_of_others_names_nothing() -> None:
    other = a_row(0, (3, M0), topic="hifi.stream.others")
    found = named(b"no row", None, other, minutes={M0}, spans=[(0, 9)])
    assert found == MinuteRoots()


def test_stretches_with_little_between_are_read_as_one() -> None:
    near = Offsets.of([(0, 10), (500, 510)])
    far = Offsets.of([(0, 10), (100_000, 100_010)])
    here, there = KafkaPartition(ACKED, 0), KafkaPartition(ACKED, 1)
    assert stretches({0: near, 1: far}) == [
        {here: (0, 510), there: (0, 10)},
        {there: (100_000, 100_010)},
    ]
    assert stretches({}) == []


def test_there_are_at_most_eight_stretches_and_the_smallest_gaps_are_read_over() -> None:
    firsts = [at * 100_000 + at * at * 100 for at in range(30)]
    where = KafkaPartition(ACKED, 0)
    found = stretches({0: Offsets.of([(first, first + 10) for first in firsts])})
    assert len(found) == 8
    assert found[0] == {where: (0, firsts[22] + 10)}
    assert found[-1] == {where: (firsts[29], firsts[29] + 10)}


def test_events_of_one_minute_that_lie_together_are_one_run_and_derived_ones_stand_apart() -> None:
    def headers(event_id: str, event_time_ms: int, *more: tuple[str, bytes]) -> Any:
        made = event_headers(event_id=event_id, event_time_ms=event_time_ms, accepted_at_ms=M1 + 7)
        return [{"key": name, "value": raw} for name, raw in (*made, *more)]

    told = [
        headers("a", M0),
        headers("b", M0 + 1),
        headers("c", M1),
        headers("d", M1, (VIA, b"p")),
        headers("e", M1, (VIA, b"p")),
        headers("f", M1, (VIA, b"p")),
    ]
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns = {
        "topic": pa.array([TOPIC] * 6),
        "partition": pa.array([0] * 6, pa.int32()),
        "offset": pa.array([4, 5, 6, 7, 8, 10], pa.int64()),
        "timestamp": pa.array([M1] * 6, pa.timestamp("ms", "UTC")),
        "key": pa.array([None] * 6, pa.binary()),
        "value": pa.array([b""] * 6, pa.binary()),
        "headers": pa.array(told, pa.list_(header)),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    (part,) = look([batch], spans={KafkaPartition(TOPIC, 0): [(4, 11)]})
    found = msgspec.msgpack.decode(part.column("part")[0].as_py(), type=list[LoggedRun])
    assert [(it.first, it.end, it.minute, it.ids, it.is_derived) for it in found] == [
        (4, 6, M0, ["a", "b"], False),
        (6, 7, M1, ["c"], False),
        (7, 9, M1, ["d", "e"], True),
        (10, 11, M1, ["f"], True),
    ]
