"""Reports of restores: the newest one counts, and restored events are found."""

import pytest
from msgspec.structs import replace

from deploy.cli.archive.put_back import PutBack, nothing_yet
from shared.event.record import KafkaPartition, Origin
from shared.event.topics import stream_topic
from shared.proof.archived import ArchiveId
from shared.proof.restored import RestoredEvents, RestoredView, Restores

TOPIC, AT_MS = stream_topic("orders"), 1_700_000_000_000
ARCHIVE = ArchiveId("default", "orders", "kept", "life")
ENDS = {KafkaPartition(stream_topic("again"), 0): 7, KafkaPartition(stream_topic("again"), 1): 0}


def spring() -> PutBack:
    return PutBack(nothing_yet("spring", ARCHIVE, "again", at_ms=5, ends=ENDS))


def event(offset: int) -> dict[str, int]:
    return {"offset": offset, "time_ms": AT_MS + offset}


def put_back(*offsets: int) -> RestoredEvents:
    made = spring()
    for offset in offsets:
        made.add(0, event(offset), is_of_whole=True)
    return made.said(9)


def test_what_was_put_back_is_told_by_its_offsets_and_what_was_left_out_is_not() -> None:
    made = spring()
    for offset in (3, 4, 7):
        made.add(0, event(offset), is_of_whole=True)
    made.leave_out(0)
    made.add(1, event(2), is_of_whole=True)
    # The restore was interrupted here, and continues from its own report.
    made = PutBack(RestoredEvents.from_json(made.said(8).to_json()))
    made.add(0, event(8), is_of_whole=True)
    made.leave_out(0)
    made.add(0, event(10), is_of_whole=True)
    # Listed one by one, the offsets would be too many.
    made.add(0, event(12), is_of_whole=False)
    made.add(0, event(14), is_of_whole=True)
    said = made.said(9)
    assert (said.count, said.began_ms, said.last_ms, said.begins) == (8, 5, 9, {0: 7, 1: 0})
    assert (said.from_ms, said.to_ms) == (AT_MS + 2, AT_MS + 14)
    assert said.spans == {0: [(3, 9), (10, 11), (14, 15)], 1: [(2, 3)]}


@pytest.mark.parametrize(
    ("origin", "after_ms", "has"),
    [
        (Origin(TOPIC, 0, 3), 0, True),
        # Kafka's own markers have no event, and nobody asks for them.
        (Origin(TOPIC, 0, 4), 0, True),
        (Origin(TOPIC, 0, 6), 0, False),
        (Origin(TOPIC, 1, 3), 0, False),
        (Origin(stream_topic("others"), 0, 3), 0, False),
        # Events of an earlier or later topic of that name.
        (Origin(TOPIC, 0, 3), -60_000, False),
        (Origin(TOPIC, 0, 3), 70_000, False),
        (Origin(TOPIC, 0, 3), -50_000, True),
    ],
)
def test_an_event_was_put_back_if_its_place_and_its_time_were(
    origin: Origin, after_ms: int, *, has: bool
) -> None:
    assert put_back(3, 5).has(origin, AT_MS + after_ms) is has


def test_the_newest_word_of_each_restore_counts() -> None:
    first, later = put_back(3), put_back(3, 4)
    summer = replace(put_back(5), id="summer", life="", begins={0: 2})
    restores = Restores()
    for said in (first, summer, later):
        restores.take(said.to_json())
    restores.take(b"no restore's")
    assert restores.into("again") == restores.out_of("orders") == [summer, later]
    assert (restores.into("orders"), restores.out_of("again")) == ([], [])
    assert (restores.get(later.key), restores.get("none")) == (later, None)
    again = stream_topic("again")
    assert restores.begins() == {KafkaPartition(again, 0): 2, KafkaPartition(again, 1): 0}
    assert RestoredView.of(restores.into("again")) == RestoredView(3, "spring", 9)
    assert RestoredView.of([]) == RestoredView()
