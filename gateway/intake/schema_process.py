"""Checks events against JSON Schemas, in its own process (`python -m` this module).

Checking an event against a schema may take forever, and nothing can stop the library within a
process. So the kernel kills this process when an event has used up its CPU time, with a signal that
shows gateway.intake.schemas the cause. It exits by itself when the gateway closes the connection.

It uses jsonschema-rs, which is the fastest by far and follows all drafts. It can be kept from
fetching a schema's references, and the lengths of text and pattern bound the time of a match.
"""

import os
import resource
import signal
import socket
import struct
from contextlib import suppress
from functools import lru_cache
from time import process_time
from typing import Any

import jsonschema_rs
import msgspec

# CPU time, so that events do not fail because a machine is busy. An event of 1 MB with patterns
# takes 14 ms, an ordinary one 3 µs. Other tenants wait at most this long for one event.
EVENT_CPU_S = 0.1
# A schema of 256 Ki characters takes 10 ms unless its patterns are an attack.
SCHEMA_CPU_S = 0.25
# Later preparations get this multiple of that time, so that an accepted schema does not fail on
# a slower machine.
_SCHEMA_AGAIN = 4
# After this time, the next question gets its turn.
_TURN_CPU_S = 0.02
# A costly check gets a third of a busy CPU, and all of an idle one.
_NICENESS = 5
# Python and the library take 19 MB, a schema's patterns up to 10 MB each. Beyond this limit the
# process ends, and the next one starts without prepared schemas.
_MEMORY_BYTES_MAX = 1 << 30
# About the number of schemas that are in use at a time on one machine.
_PREPARED_MAX = 200
# For people to read; some validators' messages contain the whole event.
_DETAIL_LENGTH_MAX = 300

# The signal that ends the process shows whether the schema or an event took too long.
SCHEMA_SIGNAL, EVENT_SIGNAL = signal.SIGVTALRM, signal.SIGPROF
LENGTH = struct.Struct("<I")

# The fault of an event, and its place in the event.
Fault = tuple[str, str]


class Question(msgspec.Struct, array_like=True):
    json_schema: str
    # Empty to ask whether the schema can be used.
    values: list[bytes]


class Verdicts(msgspec.Struct, array_like=True):
    """The verdicts on a question's first one or more values; or why the schema cannot be used."""

    faults: list[Fault | None] = []
    schema_error: str | None = None


_QUESTION = msgspec.msgpack.Decoder(Question)


def main() -> None:
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A gateway that is stopping still answers its requests, so do not stop with it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # The gateway may end at any time, even in the middle of a question.
    gone = suppress(ConnectionError, struct.error, msgspec.DecodeError)
    with gone, socket.socket(fileno=0) as wire, wire.makefile("rb") as asked:
        while head := asked.read(LENGTH.size):
            question = _QUESTION.decode(asked.read(*LENGTH.unpack(head)))
            try:
                answer = msgspec.msgpack.encode(_judge(question))
            except MemoryError:
                # The library also aborts when it runs out of memory.
                os.abort()
            wire.sendall(LENGTH.pack(len(answer)) + answer)


def _judge(question: Question) -> Verdicts:
    budget_s = SCHEMA_CPU_S * _SCHEMA_AGAIN if question.values else SCHEMA_CPU_S
    # The timers end the process with SCHEMA_SIGNAL and EVENT_SIGNAL.
    signal.setitimer(signal.ITIMER_VIRTUAL, budget_s)
    try:
        validator = _prepared(question.json_schema)
    except (ValueError, RecursionError) as error:
        return Verdicts(schema_error=str(error).split("\n")[0])
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    faults: list[Fault | None] = []
    until_s = process_time() + _TURN_CPU_S
    for value in question.values:
        signal.setitimer(signal.ITIMER_PROF, EVENT_CPU_S)
        faults.append(_fault(validator, value))
        if process_time() > until_s:
            break
    signal.setitimer(signal.ITIMER_PROF, 0)
    return Verdicts(faults)


@lru_cache(maxsize=_PREPARED_MAX)
def _prepared(json_schema: str) -> Any:
    return jsonschema_rs.validator_for(
        msgspec.json.decode(json_schema),
        # A schema must not make the gateway send requests.
        offline=True,
        # No backtracking: time grows with the length of the pattern times that of the text.
        pattern_options=jsonschema_rs.RegexOptions(),
    )


def _fault(validator: Any, value: bytes) -> Fault | None:
    try:
        # Find only the first fault: listing all of them could take too long.
        validator.validate(msgspec.json.decode(value))
    except jsonschema_rs.ValidationError as violation:
        steps = [str(step) for step in violation.instance_path]
        escaped = [step.replace("~", "~0").replace("/", "~1") for step in steps]
        return violation.message[:_DETAIL_LENGTH_MAX], "".join(f"/{step}" for step in escaped)
    except (msgspec.DecodeError, RecursionError) as error:
        return f"it cannot be checked: {error}"[:_DETAIL_LENGTH_MAX], ""
    return None


if __name__ == "__main__":
    main()
