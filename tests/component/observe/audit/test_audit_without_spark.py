"""A Spark cluster without room delays the audit, and nothing else in observe."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from observe.audit import loop as module
from observe.audit.loop import Auditor
from observe.audit.status import AuditStatus
from observe.settings import ObserveSettings
from shared.config.configuration import Configuration
from shared.runtime.clock import now_ms
from shared.runtime.health import Health
from shared.runtime.setup_error import KafkaUnavailableError, SetupError


class Room:
    """A cluster that has no room at first."""

    def __init__(self) -> None:
        self.asked, self.is_there = 0, False

    @contextmanager
    def spark(self, *_: object, **__: object) -> Iterator[Any]:
        self.asked += 1
        if not self.is_there:
            raise SetupError("No executor has run Hifi's Python.")
        yield object()


def auditor(master: str, folder: Path) -> tuple[Auditor, AuditStatus]:
    settings = ObserveSettings(  # type: ignore[call-arg]
        HIFI_SPARK_MASTER=master, folder=folder, audit_interval_s=0.01
    )
    status = AuditStatus(started_ms=now_ms(), interval_s=0.01, overdue_after_s=600.0, is_on=True)
    return Auditor(settings, status, Configuration, Health()), status


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    found = Room()
    monkeypatch.setattr(module, "audit_spark", found.spark)

    def no_kafka(_: str) -> Any:
        raise KafkaUnavailableError("not of interest")

    monkeypatch.setattr(module, "open_reader", no_kafka)
    return found


def test_it_is_asked_again_until_there_is_room(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, status = auditor("spark://127.0.0.1:7077", tmp_path)
    begun = asyncio.Event()

    async def audit(_: Auditor, __: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "require_running", lambda _: None)
    monkeypatch.setattr(Auditor, "_audit", audit)

    async def scenario() -> None:
        running = asyncio.create_task(one.run())
        async with asyncio.timeout(30):
            while room.asked < 3:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
            assert status.health.problem == "No executor has run Hifi's Python."
            room.is_there = True
            await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(scenario())


def test_what_is_wrong_with_this_machine_ends_it(room: Room, tmp_path: Path) -> None:
    one, _ = auditor("local", tmp_path)
    with pytest.raises(SetupError, match="No executor"):
        asyncio.run(asyncio.wait_for(cast("Any", one).run(), 30))
    assert room.asked == 1
