"""A replay goes in slices, goes on where it was, and is never another one under the same name."""

import json
from pathlib import Path

import pytest

from delivery.spark.replay import Replay, kept_position, next_slice
from shared.config.destination import Destination
from shared.event.record import KafkaPartition
from shared.runtime.setup_error import UsageError

TO = Destination(stream="s", name="d", url="http://localhost/")
A, B = KafkaPartition("hifi.stream.s", 0), KafkaPartition("hifi.stream.s", 1)


def test_slices_cover_the_span_once_and_end() -> None:
    at, end = {A: 5, B: 0}, {A: 12, B: 3}
    seen: list[tuple[KafkaPartition, int]] = []
    while (upto := next_slice(at, end, 4)) != at:
        seen += [(where, n) for where in end for n in range(at[where], upto[where])]
        assert sum(upto[where] - at[where] for where in end) <= 4
        at = dict(upto)
    assert sorted(seen) == [(A, n) for n in range(5, 12)] + [(B, n) for n in range(3)]


def test_it_goes_on_where_it_was_and_refuses_another_wish(tmp_path: Path) -> None:
    wanted = Replay("r1", TO, {A: 0}, {A: 9})
    assert wanted.event_count == 9
    book = tmp_path / "r1.json"
    assert kept_position(book, wanted) == {A: 0}
    book.write_text(json.dumps({"fingerprint": wanted.fingerprint, "at": [[*A, 4]]}))
    assert kept_position(book, wanted) == {A: 4}
    with pytest.raises(UsageError, match="choose another --id"):
        kept_position(book, Replay("r1", TO, {A: 0}, {A: 10}))
