"""Judges documents and tries events in a process of its own (`python -m` this module).

Spark folds, plans and runs a document's expressions here, in a small JVM, before any other process
does, so that an expression that takes all memory, or never ends, harms no other process.
`judge_client` asks one question at a time, and ends the process when an answer takes too long. The
process ends by itself when its client is gone.
"""

import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from pyspark.sql import SparkSession

from pipelines.judging.sandbox import trial_session

LENGTH = struct.Struct("<I")
# No step may make more than 32 MB of the longest trial event (200 KB).
_HEAP_MB = 192
# Urgent processes go first.
_NICENESS = 5
# How long a JVM takes to end after a question that exhausts its memory.
_ENDS_WITHIN_S = 2.0


class JudgeQuestion(NamedTuple):
    """A function of ours, and its arguments after the first, which is the session."""

    work: Callable[..., Any]
    given: tuple[Any, ...] = ()
    named: Mapping[str, Any] = {}


# The result, and the error's text if the function failed.
Answer: TypeAlias = tuple[Any, str]


def framed(message: Any) -> bytes:
    body = pickle.dumps(message)
    return LENGTH.pack(len(body)) + body


def main() -> None:
    os.nice(_NICENESS)
    # The client ends this process.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    folder, cache = map(Path, sys.argv[1:])
    questions: SimpleQueue[JudgeQuestion] = SimpleQueue()
    with socket.socket(fileno=0) as wire, trial_session(folder, cache, _HEAP_MB) as session:
        wire.sendall(framed((None, "")))
        Thread(target=_read, args=(wire.makefile("rb"), questions), daemon=True).start()
        while True:
            wire.sendall(framed(_answer(session, questions.get())))


def _read(asked: BinaryIO, questions: "SimpleQueue[JudgeQuestion]") -> None:
    """Read questions; when the client is gone, end the process, whatever it is doing."""
    try:
        while head := asked.read(LENGTH.size):
            questions.put(pickle.loads(asked.read(*LENGTH.unpack(head))))  # noqa: S301 - our own
    finally:
        os.killpg(0, signal.SIGKILL)


def _answer(session: SparkSession, question: JudgeQuestion) -> Answer:
    try:
        return question.work(session, *question.given, **question.named), ""
    except Exception as error:  # noqa: BLE001 - the caller gets it
        _end_with_its_jvm(session)
        return None, f"{type(error).__name__}: {error}"


def _end_with_its_jvm(session: SparkSession) -> None:
    """End with the JVM if it has run out of memory: then it is ending, or has ended."""
    gateway = session.sparkContext._gateway  # noqa: SLF001 - it has started the JVM
    with suppress(subprocess.TimeoutExpired):
        gateway.proc.wait(_ENDS_WITHIN_S)  # type: ignore[union-attr]
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
