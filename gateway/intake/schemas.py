"""Checks events against their stream's JSON Schema, in a process that may be ended at any time.

No schema is cheap for every event, and none of them may hold up a gateway (ADR 0043). Tenants take
turns, so that nobody waits for the expensive events of another tenant.
"""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import msgspec
import structlog

from gateway.intake import schema_process
from gateway.intake.events import Event, ParsedBody, Rejection
from gateway.intake.schema_process import (
    EVENT_CPU_S,
    EVENT_SIGNAL,
    LENGTH,
    SCHEMA_CPU_S,
    SCHEMA_SIGNAL,
    Fault,
    Question,
    Verdicts,
)
from gateway.problems import Problem

log = structlog.get_logger()

# Bytes of one question: after a turn that was too short for it, they are sent again.
_QUESTION_BYTES = 262_144
# No answer should take longer than one of Kafka; most are there after 0.2 ms.
_CHECK_S_MAX = 10.0
_READ_BYTES = 65_536
# A schema or an event used up its time, or the memory, or the stack.
_DEATHS = {-SCHEMA_SIGNAL, -EVENT_SIGNAL, -signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS}
_DEAR_SCHEMA = (
    f"preparing it takes more than {SCHEMA_CPU_S:g} s, or too much memory: make it, or the"
    " patterns in it, simpler"
)
_VERDICTS = msgspec.msgpack.Decoder(Verdicts)


class SchemaError(ValueError):
    """The text is not a JSON Schema that can be used; the error says where and why."""


class SchemaChecks:
    """Checks in a separate process, which starts when it is needed."""

    def __init__(self) -> None:
        self._process: _Process | None = None
        self._turn = asyncio.Lock()
        # The turns of waiting tenants; forgotten with the last of their requests.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()

    async def check(self, json_schema: str, *, tenant: str) -> None:
        """Raise SchemaError when no event can be judged by it."""
        async with _in_time():
            await self._ask(Question(json_schema, []), tenant)

    async def keep_fitting(self, parsed: ParsedBody, json_schema: str, *, tenant: str) -> None:
        """Reject each event that the schema does not allow. Problem when none can be judged."""
        values = [event.value for event in parsed.events]
        try:
            async with _in_time():
                faults = await self._faults(values, json_schema, tenant)
        except SchemaError as error:
            raise _not_judged(f"The schema of the stream cannot be used: {error}") from error
        except OSError as error:
            detail = f"Events cannot be checked against the schema of the stream: {error!r}"
            raise _not_judged(detail) from error
        kept: list[Event] = []
        indexes: list[int] = []
        for index, event, fault in zip(parsed.indexes, parsed.events, faults, strict=True):
            if fault is None:
                kept.append(event)
                indexes.append(index)
            else:
                detail, pointer = fault
                where = parsed.where(index) + pointer
                rejection = Rejection(index, event.id, "schema_violation", detail, where)
                parsed.rejections.append(rejection)
        parsed.events, parsed.indexes = kept, indexes

    async def _faults(
        self, values: Sequence[bytes], json_schema: str, tenant: str
    ) -> list[Fault | None]:
        faults: list[Fault | None] = []
        # Ask up to here one by one: a process has died of one of these.
        alone_until = 0
        while (at := len(faults)) < len(values):
            asked = _some(values, at) if at >= alone_until else [values[at]]
            try:
                faults += (await self._ask(Question(json_schema, asked), tenant)).faults
            except _DiedError as died:
                if len(asked) == 1 and died.is_certain:
                    faults.append((died.reason, ""))
                alone_until = max(alone_until, at + len(asked))
        return faults

    async def _ask(self, question: Question, tenant: str) -> Verdicts:
        own_turn = self._turns.setdefault(tenant, asyncio.Lock())
        async with own_turn, self._turn:
            process = self._process = self._process or _Process()
            try:
                verdicts = await process.ask(question)
            except BaseException as error:
                self._process = None
                status = process.end()
                log.warning("schema_process.ended", tenant=tenant, status=status)
                if not isinstance(error, ConnectionError) or status not in _DEATHS:
                    raise
                if status == -SCHEMA_SIGNAL or not question.values:
                    raise SchemaError(_DEAR_SCHEMA) from error
                raise _DiedError(status, is_fresh=process.is_fresh) from error
        if verdicts.schema_error is not None:
            raise SchemaError(verdicts.schema_error)
        return verdicts


class _DiedError(Exception):
    """The process died while it checked an event."""

    def __init__(self, status: int, *, is_fresh: bool) -> None:
        super().__init__(status)
        is_slow = status == -EVENT_SIGNAL
        # Otherwise earlier events may have filled the memory.
        self.is_certain = is_slow or is_fresh
        too_much = f"more than {EVENT_CPU_S:g} s" if is_slow else "too much memory"
        self.reason = f"it cannot be checked: that takes {too_much}; make it or the schema simpler"


class _Process:
    """One process, and our end of the wire to it."""

    def __init__(self) -> None:
        self.is_fresh = True
        self._wire, theirs = socket.socketpair()
        self._wire.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", schema_process.__name__], stdin=theirs.fileno()
            )

    async def ask(self, question: Question) -> Verdicts:
        """Return its verdicts; ConnectionError when the process has died."""
        loop = asyncio.get_running_loop()
        body = msgspec.msgpack.encode(question)
        await loop.sock_sendall(self._wire, LENGTH.pack(len(body)) + body)
        answer = await self._read()
        while len(answer) < LENGTH.size + LENGTH.unpack_from(answer)[0]:
            answer += await self._read()
        self.is_fresh = False
        return _VERDICTS.decode(answer[LENGTH.size :])

    def end(self) -> int:
        """End it; return its status, which is below zero for a signal's number."""
        self._wire.close()
        self._process.kill()
        status: int = self._process.wait()
        return status

    async def _read(self) -> bytes:
        piece = await asyncio.get_running_loop().sock_recv(self._wire, _READ_BYTES)
        if not piece:
            raise ConnectionResetError
        return piece


def _some(values: Sequence[bytes], at: int) -> list[bytes]:
    """Return the next values, as many as one question holds."""
    byte_count = 0
    for end in range(at, len(values)):
        byte_count += len(values[end])
        if byte_count > _QUESTION_BYTES:
            return list(values[at : max(end, at + 1)])
    return list(values[at:])


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_CHECK_S_MAX):
            yield
    except TimeoutError as error:
        raise Problem(
            "overloaded",
            f"The stream's schema could not be gone through within {_CHECK_S_MAX:g} s, and nothing"
            " was stored: send fewer events at once, or make the schema simpler.",
            headers=((b"retry-after", b"10"),),
        ) from error


def _not_judged(detail: str) -> Problem:
    return Problem("not_stored", detail, headers=((b"retry-after", b"10"),))
