"""How far a micro-batch of the retrier goes, and how it is cut into tasks."""

from hypothesis import given
from hypothesis import strategies as st

from retrier.due_gate import DueRange, SparkOffsets, bounded, due_ranges

positions = st.dictionaries(
    st.sampled_from(["hifi.retry.30s", "hifi.retry.5m"]),
    st.dictionaries(st.sampled_from(["0", "1"]), st.integers(0, 50)),
)


def test_it_goes_to_what_is_due() -> None:
    start: SparkOffsets = {"t": {"0": 3, "1": 5}}
    due: SparkOffsets = {"t": {"0": 7, "1": 5}}
    assert bounded(start, due, events_max=100) == due
    assert due_ranges(start, due) == [DueRange("t", 0, 3, 7)]


def test_it_goes_no_further_than_the_bound() -> None:
    assert bounded({"t": {"0": 3}}, {"t": {"0": 900}}, events_max=10) == {"t": {"0": 13}}


def test_it_never_goes_back() -> None:
    """A clock that was set back makes less due than there was."""
    assert bounded({"t": {"0": 9}}, {"t": {"0": 4}}, events_max=10) == {"t": {"0": 9}}


def test_a_kafka_partition_that_is_new_starts_at_its_beginning() -> None:
    end = bounded({"t": {"0": 4}}, {"t": {"0": 4, "1": 2}}, events_max=10)
    assert end == {"t": {"0": 4, "1": 2}}
    assert due_ranges({"t": {"0": 4}}, end) == [DueRange("t", 1, 0, 2)]


def test_a_topic_that_does_not_answer_keeps_its_position() -> None:
    assert bounded({"t": {"0": 4}}, {}, events_max=10) == {"t": {"0": 4}}


@given(start=positions, due=positions, events_max=st.integers(1, 20))
def test_steps_reach_all_that_is_due_once_and_in_order(
    start: SparkOffsets, due: SparkOffsets, events_max: int
) -> None:
    read: dict[tuple[str, int], list[int]] = {}
    at = start
    for _ in range(60):
        end = bounded(at, due, events_max=events_max)
        for part in due_ranges(at, end):
            assert part.end - part.start <= events_max
            read.setdefault((part.topic, part.partition), []).extend(range(part.start, part.end))
        at = end
    for topic, numbers in due.items():
        for number, due_end in numbers.items():
            first = start.get(topic, {}).get(number, 0)
            assert read.get((topic, int(number)), []) == list(range(first, due_end))
