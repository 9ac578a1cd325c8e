"""Has documents judged and events tried in a separate process, which may end at any time.

The process starts when it is needed and ends when it is idle. Tenants take turns (ADR 0116).
"""

import asyncio
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

import structlog

from pipelines.judging.apart import judge_process
from pipelines.judging.apart.judge_process import LENGTH, Answer, JudgeQuestion, framed
from pipelines.judging.judge import NotTriedError, Refusal, judge
from shared.config.pipeline import Pipeline
from shared.runtime.java.cache_folder import default_cache
from shared.runtime.spark.processes import tree_processor_s
from shared.runtime.tenant_turns import TenantTurns

log = structlog.get_logger()

# The limits of judging a document: processor time, as a busy machine is not the document's fault,
# and clock time, as a function may wait. The first document of a JVM takes 10 s of clock time.
_CPU_S, _JUDGE_S = 40.0, 150.0
# A JVM starts within 10 s, unless the machine is busy.
_START_S = 120.0
# People who write a document try it repeatedly.
_IDLE_S = 300.0
_LOOK_S = 0.5
_READ_BYTES = 1 << 20
# The document need not be at fault when a process ends.
_TRIES = 2


class JudgeDiedError(Exception):
    """The process has ended before it answered a question."""


class JudgeTookTooLongError(Exception):
    """The process was ended because an answer took too long."""


class JudgeClient:
    """The judging process of one pipelines process."""

    def __init__(self, folder: Path, cache: Path | None) -> None:
        self._folder, self._cache = folder, cache
        self._process: _JudgeProcess | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._turns = TenantTurns(1)

    def close(self) -> None:
        """End the process, if there is one."""
        if self._idle is not None:
            self._idle.cancel()
        process, self._process = self._process, None
        if process is not None:
            process.end()

    async def judge(self, pipeline: Pipeline, functions: Collection[str]) -> Refusal | None:
        """Say why a document cannot be run; NotTriedError if nobody could find that out."""
        question = JudgeQuestion(judge, (pipeline, functions))
        for _ in range(_TRIES):
            with suppress(JudgeDiedError):
                try:
                    refusal: Refusal | None = await self.ask(
                        pipeline.tenant, question, within_s=_JUDGE_S
                    )
                except JudgeTookTooLongError as error:
                    return Refusal(f"judging it takes {error}: make its steps simpler", "/steps")
                return refusal
        return Refusal(
            "judging it takes more memory than there is for that: make its steps simpler", "/steps"
        )

    async def ask(
        self, tenant: str, question: JudgeQuestion, *, within_s: float, cpu_s: float = _CPU_S
    ) -> Any:
        """Return the result of a question.

        Raise JudgeDiedError, JudgeTookTooLongError, or NotTriedError for an error in the process.
        """
        # A trial need not wait until all documents of its tenant are judged.
        async with self._turns.of(f"{question.work.__name__} {tenant}"):
            if self._idle is not None:
                self._idle.cancel()
            try:
                if self._process is None:
                    self._process = _JudgeProcess(self._folder, self._cache)
                    await self._process.start()
                return await self._process.ask(question, cpu_s, within_s)
            except BaseException as error:
                log.warning("judge.ended", tenant=tenant, why=repr(error)[:300])
                self.close()
                raise
            finally:
                self._idle = asyncio.get_running_loop().call_later(_IDLE_S, self.close)


class _JudgeProcess:
    """One process, and our end of its socket."""

    def __init__(self, folder: Path, cache: Path | None) -> None:
        # An earlier process may have been killed, and left files.
        shutil.rmtree(folder, ignore_errors=True)
        self._wire, theirs = socket.socketpair()
        self._wire.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", judge_process.__name__, folder, cache or default_cache()],
                stdin=theirs.fileno(),
                # All processes that it starts are to end with it.
                start_new_session=True,
            )

    async def start(self) -> None:
        """Wait for the process; NotTriedError if it fails, which is not a document's fault."""
        try:
            await self._answer(inf, _START_S)
        except (JudgeDiedError, JudgeTookTooLongError) as error:
            raise NotTriedError("The process that judges documents did not start.") from error

    async def ask(self, question: JudgeQuestion, cpu_s: float, within_s: float) -> Any:
        with suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(self._wire, framed(question))
        value, error = await self._answer(cpu_s, within_s)
        if error:
            raise NotTriedError(error)
        return value

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._wire.close()

    async def _answer(self, cpu_s: float, within_s: float) -> Answer:
        began_s, ran_s = time.monotonic(), tree_processor_s(self._process.pid)
        reading = asyncio.ensure_future(self._frame())
        try:
            while not (await asyncio.wait({reading}, timeout=_LOOK_S))[0]:
                if tree_processor_s(self._process.pid) - ran_s > cpu_s:
                    raise JudgeTookTooLongError(f"more than {cpu_s:g} s of a processor")
                if time.monotonic() - began_s > within_s:
                    raise JudgeTookTooLongError(f"more than {within_s:g} s")
            return reading.result()
        finally:
            reading.cancel()
            # Otherwise the reading task would still wait on a closed socket.
            await asyncio.wait({reading})

    async def _frame(self) -> Answer:
        read, needed = b"", LENGTH.size
        while len(read) < needed:
            try:
                piece = await asyncio.get_running_loop().sock_recv(self._wire, _READ_BYTES)
            except ConnectionError as error:
                raise JudgeDiedError from error
            if not piece:
                raise JudgeDiedError
            read += piece
            if len(read) >= LENGTH.size:
                needed = LENGTH.size + LENGTH.unpack_from(read)[0]
        answer: Answer = pickle.loads(read[LENGTH.size :])  # noqa: S301 - our own process wrote it
        return answer
