"""An event is taken once, however its repeats arrive, and keys expire by the broker's time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.windows import seen as seen_module
from pipelines.windows.change import Head, TooMuchKeptError
from pipelines.windows.seen import KeptKeys, SeenEvent, seen_of
from shared.config.steps.window import OnceOf

HOUR_MS = 3_600_000
ONCE = OnceOf(key="id", within="1 hour")
JOBS = st.lists(st.lists(st.sampled_from("abcdef"), max_size=8), min_size=1, max_size=6)


@given(JOBS, st.integers(1, HOUR_MS))
@settings(max_examples=80, deadline=None)
def test_of_each_key_one_passes_within_its_time(jobs: list[list[str]], step_ms: int) -> None:
    kept, at = KeptKeys(ONCE, Head("s")), 0
    log: dict[bytes, bytes | None] = {}
    passed: dict[str, int] = {}
    for keys in jobs:
        events = [SeenEvent((at + n) * step_ms, 0, at + n, key) for n, key in enumerate(keys)]
        at += len(events)
        change = kept.changed_by(events, at * step_ms)
        for event in events:
            before = passed.get(event.key)
            is_repeat = (0, event.offset) in change.repeats
            assert is_repeat == (before is not None and event.stored_ms - before < HOUR_MS)
            if not is_repeat:
                passed[event.key] = event.stored_ms
        kept.apply(change)
        log |= dict(change.records)
        again = KeptKeys(ONCE, Head("s"))
        for name, value in log.items():
            again.read(name, value)
        assert (again.head, again.size, again._records) == (
            kept.head,
            kept.size,
            kept._records,
        )
        kept = again
    kept.apply(kept.changed_by([], at * step_ms + 2 * HOUR_MS))
    assert (len(kept), kept.size, kept.closes_at_ms) == (0, 0, None)


def test_a_key_that_was_seen_again_is_not_forgotten_with_its_first_record() -> None:
    kept = KeptKeys(ONCE, Head("s"))
    kept.apply(kept.changed_by([SeenEvent(0, 0, 0, "a")], 0))
    assert kept.closes_at_ms == HOUR_MS
    kept.apply(kept.changed_by([SeenEvent(HOUR_MS, 0, 1, "a")], 0))
    kept.apply(kept.changed_by([], HOUR_MS))
    assert kept.changed_by([SeenEvent(HOUR_MS + 5, 0, 2, "a")], 0).repeats == {(0, 2)}


def test_there_is_no_more_room_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptKeys(ONCE, Head("s"))
    with pytest.raises(TooMuchKeptError):
        kept.changed_by([SeenEvent(0, 0, 0, "a")], 0, room=10)
    monkeypatch.setattr(seen_module, "KEYS_KEPT_MAX", 1)
    kept.apply(kept.changed_by([SeenEvent(0, 0, 0, "a")], 0))
    assert kept.changed_by([SeenEvent(1, 0, 1, "a")], 0).repeats
    with pytest.raises(TooMuchKeptError):
        kept.changed_by([SeenEvent(1, 0, 1, "b")], 0)


def test_who_has_no_key_or_is_dead_is_not_asked_for() -> None:
    row = {"stored_ms": 1, "partition": 0, "offset": 2, "nth": 0, "seen": "a", "outcome": "passed"}
    others = [row | {"seen": None}, row | {"outcome": "dead"}, row | {"nth": 1}]
    assert seen_of([row, *others]) == [SeenEvent(1, 0, 2, "a")]
