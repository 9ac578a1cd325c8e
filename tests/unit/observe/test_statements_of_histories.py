"""Every statement of 200 histories equals a recount of the log at the time of signing."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from observe.audit.memory import Memory
from tests.support.observe.model_hifi import ModelHifi


def live(dice: Random, hifi: ModelHifi, steps: int) -> None:
    """Let this many things happen, with audits between them, and then bring all to an end."""
    names = iter(f"model/to{nth}" for nth in range(100))
    hifi.add(next(names), is_late=False)
    for _ in range(steps):
        hifi.now_ms += dice.choice((20_000, 45_000, 60_000, 90_000, 90_000, 1_800_000))
        for _ in range(dice.randint(0, 4)):
            _happen(dice, hifi, names)
        for to in _there(hifi):
            hifi.deliver(to, at_most=dice.choice((0, 5, 40)))
            if dice.random() < 0.2:
                hifi.retry(to)
        hifi.audit()
    hifi.write_late_rows()
    for to in hifi.lanes:
        hifi.add(to, is_late=False)
    for nth in range(16):
        hifi.now_ms += 61_000
        for to in _there(hifi):
            hifi.deliver(to, at_most=1_000)
            if nth > 2:
                hifi.retry(to)
        hifi.audit()


def _there(hifi: ModelHifi) -> Iterator[str]:
    yield from [to for to, lane in hifi.lanes.items() if lane.is_there]


def _happen(dice: Random, hifi: ModelHifi, names: Iterator[str]) -> None:  # noqa: C901 - a list
    what = dice.choice(
        ("post",) * 8
        + ("unnamed", "leader", "leader", "rows", "rows", "early", "late", "remove")
        + ("stream", "again", "again", "restart", "forget")
    )
    there = list(_there(hifi))
    match what:
        case "post":
            hifi.post(dice.randint(1, 20))
        case "unnamed":
            hifi.post(dice.randint(1, 5), is_named=False)
        case "leader":
            hifi.move_leader(dice.randint(1, 6))
        case "rows":
            hifi.write_late_rows()
        case "early" | "late" if len(hifi.lanes) < 5:
            hifi.add(next(names), is_late=what == "late")
        case "remove" if there:
            hifi.remove(dice.choice(there))
        case "stream":
            hifi.remove(*there)
        case "again":
            for to in hifi.lanes:
                hifi.add(to, is_late=False)
        case "restart":
            hifi.start_again()
        case "forget" if dice.random() < 0.3:
            hifi.start_again(Memory())


def final(hifi: ModelHifi) -> None:
    """Check that each minute has a newest statement, with a line for each due destination."""
    newest = {signed.statement.minute_ms: signed.statement for signed in hifi.statements}
    minutes = {one.minute for log in hifi.log.values() for one in log}
    assert newest.keys() >= minutes
    for minute in minutes:
        due = {
            to.removeprefix("model/"): line
            for to in hifi.lanes
            if (line := hifi.line(to, minute))[0]
        }
        said = {
            name: (it.due, it.delivered, it.waiting, it.dead, dict(it.lost))
            for name, it in newest[minute].destinations.items()
        }
        assert said == due, (minute, newest[minute])


@pytest.mark.parametrize("is_wrong", [False, True], ids=["as it is", "with G1"])
@pytest.mark.parametrize(
    "seed",
    [
        *range(4),
        # In seed 66, the late rows are as many as the earlier findings that they contradict, and
        # then all memory is lost.
        66,
        *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 100) if seed != 66),
    ],
)
def test_every_statement_agrees_with_a_recount_of_the_log(
    seed: int,
    is_wrong: bool,  # noqa: FBT001 - a table
    tmp_path: Path,
) -> None:
    dice = Random(seed)
    hifi = ModelHifi(tmp_path, dice, is_wrong=is_wrong)
    live(dice, hifi, steps=30)
    final(hifi)
    assert hifi.missing == {event_id for event_id, _ in hifi.gone.values()}
