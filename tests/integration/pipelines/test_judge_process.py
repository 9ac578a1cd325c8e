"""Documents are judged in a process of their own: a bad document ends only that one."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.judging.apart import judge_client
from pipelines.judging.apart.judge_client import JudgeClient, JudgeDiedError, JudgeTookTooLongError
from pipelines.judging.apart.judge_process import JudgeQuestion
from pipelines.judging.judge import NotTriedError
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.pipelines import judge_works
from tests.support.pipelines.trial_spark import a_pipeline

pytestmark = pytest.mark.integration

WITHIN_S = 120.0


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def judge(
    runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JudgeClient]:
    async def made() -> JudgeClient:
        return JudgeClient(tmp_path_factory.mktemp("judging"), None)

    client = runner.run(made())
    yield client
    client.close()


def of_group(pid: int) -> list[str]:
    """Return the processes of the group that still run."""
    found = subprocess.run(["pgrep", "-g", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.split()


def ask(judge: JudgeClient, work: Callable[..., Any], **limits: float) -> Coroutine[Any, Any, Any]:
    return judge.ask("acme", JudgeQuestion(work), **{"within_s": WITHIN_S, **limits})


def wait_until_it_has_ended(pid: int) -> None:
    wait_until(lambda: not of_group(pid), what="the process and its JVM have ended")


def test_documents_are_judged_there_and_tenants_take_turns(
    runner: asyncio.Runner, judge: JudgeClient
) -> None:
    assert runner.run(judge.judge(a_pipeline({"where": "n > 1"}), ())) is None
    refusal = runner.run(judge.judge(a_pipeline({"where": "no_such > 1"}), ()))
    assert refusal is not None
    assert refusal.pointer == "/steps/0/where"
    answered: list[str] = []

    async def ask_for(tenant: str) -> None:
        await judge.ask(tenant, JudgeQuestion(judge_works.pid), within_s=WITHIN_S)
        answered.append(tenant)

    async def all_ask() -> None:
        async with asyncio.TaskGroup() as group:
            for tenant in ("many", "many", "many", "many", "one"):
                group.create_task(ask_for(tenant))

    runner.run(all_ask())
    assert answered.index("one") <= 2


def test_it_may_end_by_its_memory_or_be_killed_and_goes_on(
    runner: asyncio.Runner, judge: JudgeClient
) -> None:
    before = runner.run(ask(judge, judge_works.pid))
    with pytest.raises(JudgeDiedError):
        runner.run(ask(judge, judge_works.folds_a_gigabyte))
    wait_until_it_has_ended(before)
    killed = runner.run(ask(judge, judge_works.pid))
    os.kill(killed, signal.SIGKILL)
    # The judging process was idle: no document was at fault.
    assert runner.run(judge.judge(a_pipeline({"where": "no_such > 1"}), ())) is not None
    wait_until_it_has_ended(killed)


def test_it_is_ended_when_an_answer_takes_too_long(
    runner: asyncio.Runner, judge: JudgeClient
) -> None:
    before = runner.run(ask(judge, judge_works.pid))
    with pytest.raises(JudgeTookTooLongError, match="of a processor"):
        runner.run(ask(judge, judge_works.never_ends, cpu_s=2.0))
    wait_until_it_has_ended(before)


def test_it_ends_when_it_is_idle_and_failures_refuse_nothing(
    runner: asyncio.Runner, judge: JudgeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask_and_wait() -> int:
        with monkeypatch.context() as changed:
            changed.setattr(judge_client, "_IDLE_S", 0.2)
            pid: int = await ask(judge, judge_works.pid)
        assert of_group(pid)
        await asyncio.sleep(1)
        return pid

    wait_until_it_has_ended(runner.run(ask_and_wait()))
    with pytest.raises(NotTriedError, match="the disk is full"):
        runner.run(ask(judge, judge_works.fails))


def test_it_ends_with_the_one_who_asks(tmp_path: Path) -> None:
    command = [sys.executable, "-m", judge_works.__name__, str(tmp_path / "judging")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        pid = int(asking.stdout.readline())
        # The judging process has begun with an endless document.
        time.sleep(2)
        assert len(of_group(pid)) > 1
        asking.kill()
    wait_until_it_has_ended(pid)
