"""Statements add up for destinations that were added after minutes were closed, or came back."""

from pathlib import Path
from random import Random
from typing import Any

from shared.proof.statement import Counts
from tests.support.observe.model_hifi import ModelHifi

SETTLED_MS = 121_000


def all_delivered(count: int) -> Counts:
    return Counts(delivered=count, waiting=0, dead=0, lost={}, due=count)


class Dice(Random):
    """Dice that choose this minute, the first Kafka partition, and a delivery reported at once."""

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def randrange(self, *_: object) -> int:
        return 0

    def randint(self, _: int, high: int) -> int:
        return high


def run(hifi: ModelHifi, *, deliver: tuple[str, ...] = ()) -> None:
    """Let minutes pass, lanes read, and the audit run."""
    for _ in range(4):
        hifi.now_ms += SETTLED_MS
        for to in deliver:
            hifi.deliver(to, at_most=100)
        hifi.audit()


def newest(hifi: ModelHifi) -> tuple[int, dict[str, Counts]]:
    said = hifi.statements[-1].statement
    return said.revision, dict(said.destinations)


def test_a_destination_that_is_added_later_has_a_line_of_all_that_it_was_due(
    tmp_path: Path,
) -> None:
    hifi = ModelHifi(tmp_path, Dice())
    hifi.add("model/a", is_late=False)
    hifi.post(3)
    minute_ms = hifi.log[0][0].minute
    run(hifi, deliver=("model/a",))
    assert newest(hifi) == (1, {"a": all_delivered(3)})
    assert (hifi.topic, minute_ms) in hifi.memory.books.closed
    hifi.add("model/b", is_late=False)
    run(hifi)
    # The destination has not reached any event yet, so no statement mentions it.
    assert newest(hifi)[0] == 1
    run(hifi, deliver=("model/b",))
    assert newest(hifi) == (2, {"a": all_delivered(3), "b": all_delivered(3)})
    assert (hifi.topic, minute_ms) in hifi.memory.books.closed
    # A late event adds one to both lines.
    events = hifi._events(1)
    events[0].minute = minute_ms
    hifi._store(0, events)
    hifi._name(0, 3, events)
    run(hifi, deliver=("model/a", "model/b"))
    assert newest(hifi) == (3, {"a": all_delivered(4), "b": all_delivered(4)})


def test_one_that_begins_at_the_end_is_due_nothing_of_before(tmp_path: Path) -> None:
    hifi = ModelHifi(tmp_path, Dice())
    hifi.add("model/a", is_late=False)
    hifi.post(3)
    run(hifi, deliver=("model/a",))
    hifi.add("model/b", is_late=True)
    run(hifi, deliver=("model/a", "model/b"))
    assert newest(hifi) == (1, {"a": all_delivered(3)})


def test_one_that_was_away_has_its_line_again(tmp_path: Path) -> None:
    hifi = ModelHifi(tmp_path, Dice())
    hifi.add("model/a", is_late=False)
    hifi.post(3)
    hifi.deliver("model/a", at_most=2)
    hifi.audit()
    hifi.remove("model/a")
    run(hifi)
    assert newest(hifi) == (1, {})
    hifi.add("model/a", is_late=False)
    run(hifi, deliver=("model/a",))
    assert newest(hifi) == (2, {"a": all_delivered(3)})


def test_what_was_said_to_be_stored_is_named_also_after_a_loss_of_memory(tmp_path: Path) -> None:
    hifi = ModelHifi(tmp_path, Dice(), is_wrong=True)
    hifi.add("model/a", is_late=False)
    hifi.move_leader(2)
    run(hifi, deliver=("model/a",))
    lost = Counts(delivered=2, waiting=0, dead=0, lost={"gateway": 2}, due=4)
    assert newest(hifi) == (1, {"a": lost})
    assert hifi.missing == {"e1-behind", "e2-behind"}
    hifi.start_again(type(hifi.memory)())
    run(hifi)
    assert newest(hifi) == (1, {"a": lost})
