"""A replay goes in slices, goes on where it was, and is never another one under the same name."""

import json
from pathlib import Path
from typing import Any

import pytest

from delivery.settings import DeliverySettings
from delivery.spark import replay as replays
from delivery.spark.replay import ReplaySpan, kept_position, next_slice
from shared.config.destination import Destination
from shared.event.record import KafkaPartition, Position
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
    wanted = ReplaySpan("r1", TO, {A: 0}, {A: 9})
    assert wanted.event_count == 9
    book = tmp_path / "r1.json"
    assert kept_position(book, wanted) == ({A: 0}, {A: 0})
    kept = {"fingerprint": wanted.fingerprint, "at": [[*A, 4]], "begun": [[*A, 6]]}
    book.write_text(json.dumps(kept))
    assert kept_position(book, wanted) == ({A: 4}, {A: 6})
    with pytest.raises(UsageError, match="choose another --id"):
        kept_position(book, ReplaySpan("r1", TO, {A: 0}, {A: 10}))


def test_a_slice_that_was_cut_off_is_sent_again_as_a_possible_duplicate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ReplaySpan("r1", TO, {A: 0}, {A: 9})
    sent: list[tuple[Position, Position, Position]] = []
    lives = iter([True, False, True, True])

    def send(
        _: object, __: object, at: Position, upto: Position, *___: object, maybe_sent: Position
    ) -> None:
        sent.append((at, upto, maybe_sent))
        if not next(lives):
            raise KeyboardInterrupt

    monkeypatch.setattr(replays, "_send", send)
    settings = DeliverySettings(folder=tmp_path, micro_batch_events_max=4)
    spark: Any = None
    with pytest.raises(KeyboardInterrupt):
        list(replays.replay(spark, wanted, settings))
    assert list(replays.replay(spark, wanted, settings)) == [8, 9]
    first, cut, again, last = sent
    assert [each[2] for each in (first, cut)] == [{A: 0}] * 2
    # All of the slice that was begun, and nothing after it.
    assert cut[:2] == again[:2] == ({A: 4}, {A: 8})
    assert again[2] == last[2] == {A: 8}


def test_no_slice_goes_past_where_one_place_ends_and_another_begins() -> None:
    one, two = KafkaPartition("s", 0), KafkaPartition("s", 1)
    end, edges = {one: 100, two: 100}, {one: [10, 25, 40]}
    at: Position = {one: 5, two: 0}
    seen = []
    while (upto := next_slice(at, end, 60, edges)) != at:
        seen.append((upto[one], upto[two]))
        at = upto
    assert seen == [(10, 30), (25, 60), (40, 90), (70, 100), (100, 100)]
