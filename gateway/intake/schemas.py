"""Checks events against their stream's JSON Schema, in a process that may be killed at any time.

Any schema is expensive for some events, and must not hold up a gateway (ADR 0043). Tenants take
turns, so that no tenant waits long for another one's expensive events.
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

# Bytes in one question. If a turn is too short for all of them, the rest is sent again.
_QUESTION_BYTES = 262_144
# No answer should take longer than Kafka's; most take 0.2 ms.
_CHECK_S_MAX = 10.0
_READ_BYTES = 65_536
# A schema or an event used up its time, the memory or the stack.
_DEATHS = {-SCHEMA_SIGNAL, -EVENT_SIGNAL, -signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS}
_DEAR_SCHEMA = (
    f"preparing it takes more than {SCHEMA_CPU_S:g} s, or too much memory: simplify it, or the"
    " patterns in it"
)
_VERDICTS = msgspec.msgpack.Decoder(Verdicts)


class SchemaError(ValueError):
    """The text is not a usable JSON Schema; the message has the place and the reason."""


class SchemaChecks:
    """Checks in a separate process, which starts when needed."""

    def __init__(self) -> None:
        self._process: _Process | None = None
        self._turn = asyncio.Lock()
        # The turns of waiting tenants; a tenant's is dropped with its last request.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()

    async def check(self, json_schema: str, *, tenant: str) -> None:
        """Raise SchemaError if the schema cannot be used."""
        async with _in_time():
            await self._ask(Question(json_schema, []), tenant)

    async def keep_fitting(self, parsed: ParsedBody, json_schema: str, *, tenant: str) -> None:
        """Reject each event that violates the schema; raise Problem if none can be checked."""
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
        # Check values before this index one by one: one of them has killed a process.
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
        # In a process that is not fresh, earlier events may have filled the memory.
        self.is_certain = is_slow or is_fresh
        too_much = f"more than {EVENT_CPU_S:g} s" if is_slow else "too much memory"
        self.reason = f"checking it takes {too_much}: simplify the event or the schema"


class _Process:
    """One process, and this end of the connection to it."""

    def __init__(self) -> None:
        self.is_fresh = True
        self._wire, theirs = socket.socketpair()
        self._wire.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", schema_process.__name__], stdin=theirs.fileno()
            )

    async def ask(self, question: Question) -> Verdicts:
        """Return the process's verdicts; raise ConnectionError if it has died."""
        loop = asyncio.get_running_loop()
        body = msgspec.msgpack.encode(question)
        await loop.sock_sendall(self._wire, LENGTH.pack(len(body)) + body)
        answer = await self._read()
        while len(answer) < LENGTH.size + LENGTH.unpack_from(answer)[0]:
            answer += await self._read()
        self.is_fresh = False
        return _VERDICTS.decode(answer[LENGTH.size :])

    def end(self) -> int:
        """Kill the process; return its status, which is minus the number of a signal."""
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
    """Return the next values, as many as fit into one question."""
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
            f"Checking the events against the stream's schema took over {_CHECK_S_MAX:g} s, so"
            " nothing was stored: send fewer events at once, or simplify the schema.",
            headers=((b"retry-after", b"10"),),
        ) from error


def _not_judged(detail: str) -> Problem:
    return Problem("not_stored", detail, headers=((b"retry-after", b"10"),))
