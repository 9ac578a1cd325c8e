"""Each run of the audit builds on the one before, with a job and a Kafka that answer at once."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from observe.audit import audit_run
from observe.audit.audit_run import Audit, AuditOutcome
from observe.audit.evidence import Claim, Evidence
from observe.audit.memory import Memory
from observe.audit.minutes import Rules
from observe.audit.signing import Signer
from observe.audit.spark_tasks import MinuteRoots
from shared.proof.intervals import Offsets
from shared.proof.statement import SignedStatement

TOPIC, TO = "hifi.stream.orders", "orders/shop"
M0, MINUTE_MS = 1_699_999_980_000, 60_000
NOW_MS = M0 + 60 * MINUTE_MS
RULES = Rules(check_after_ms=0, overdue_ms=60_000)
EACH = 10


class Job:
    """Three minutes of ten delivered events each; minutes that are `nameless` have no ids left."""

    def __init__(self, nameless: Sequence[int] = ()) -> None:
        self._nameless = nameless
        self.asked: list[list[int]] = []
        self._evidence = Evidence(
            claims=[
                Claim(TOPIC, 0, M0 + n * MINUTE_MS, n * EACH, (n + 1) * EACH, M0, (0, n, n))
                for n in range(3)
            ],
            outcomes={(TO, "delivered", TOPIC, 0): Offsets.of([(0, 3 * EACH)])},
        )

    def gather(self, _: object) -> Evidence:
        found, self._evidence = self._evidence, Evidence()
        return found

    def look_up(self, *_: object) -> list[Any]:
        return []

    def name(
        self, ledger: Mapping[int, Offsets], *, minutes: Sequence[tuple[str, int]], **_: object
    ) -> MinuteRoots:
        asked = [minute for _, minute in minutes]
        self.asked.append([(minute - M0) // MINUTE_MS for minute in asked])
        assert len(ledger[0]) == len(asked)
        roots = {(TOPIC, one): (b"root", EACH) for one in asked if one not in self._nameless}
        return MinuteRoots(roots)


class Kafka:
    async def position(self, lane: str) -> Mapping[tuple[str, int], int]:
        return {(TOPIC, 0): 3 * EACH} if lane == TO else {}

    async def spans(self, topics: Sequence[str]) -> dict[tuple[str, int], tuple[int, int]]:
        return {(TOPIC, 0): (0, 3 * EACH)} if TOPIC in topics else {}

    async def ids(self, _: object) -> dict[Any, Any]:
        return {}

    async def restored(self) -> dict[tuple[str, int], int]:
        return {}


def run(
    job: Job, folder: Path, times: int, *, removed: Sequence[str] = ()
) -> tuple[list[AuditOutcome], list[SignedStatement]]:
    """Run the audit `times` times; `removed` destinations exist in the first run only."""
    made: list[SignedStatement] = []
    memory = Memory()

    async def publish(statements: Sequence[SignedStatement]) -> None:
        made.extend(statements)

    kafka: Any = Kafka()
    asked: Any = job
    one = Audit(
        job=asked,
        kafka=kafka,
        memory=memory,
        signer=Signer(folder),
        publish=publish,
        rules=RULES,
        now_ms=lambda: NOW_MS,
    )

    async def scenario() -> list[AuditOutcome]:
        first = await one.run({TOPIC: [TO, *removed]})
        return [first, *[await one.run({TOPIC: [TO]}) for _ in range(times - 1)]]

    return asyncio.run(scenario()), made


def test_minutes_that_are_too_many_for_one_run_are_stated_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_run, "_STATED_EVENTS_MAX", EACH + 1)
    job = Job()
    outcomes, made = run(job, tmp_path, 4)
    assert job.asked == [[0], [1], [2]]
    assert [one.is_behind for one in outcomes] == [True, True, False, False]
    assert [(one.statement.minute_ms - M0) // MINUTE_MS for one in made] == [0, 1, 2]
    assert [one.statement.revision for one in made] == [1, 1, 1]


def test_a_minute_without_ids_does_not_hold_up_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_run, "_STATED_EVENTS_MAX", EACH + 1)
    job = Job(nameless=[M0])
    outcomes, made = run(job, tmp_path, 4)
    assert job.asked == [[0], [1], [2]]
    assert not outcomes[-1].is_behind
    assert [(one.statement.minute_ms - M0) // MINUTE_MS for one in made] == [1, 2]


def test_a_destination_that_is_removed_costs_no_minute_its_statement(tmp_path: Path) -> None:
    _, made = run(Job(), tmp_path, 2, removed=["orders/gone"])
    assert [(one.statement.minute_ms - M0) // MINUTE_MS for one in made] == [0, 1, 2]
