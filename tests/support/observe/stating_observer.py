"""An observer whose audit is as fast as possible: it signs minute after minute, forever."""

import asyncio
import signal
import sys
from pathlib import Path

from deploy.local.children import Child
from observe.active import ActiveObserver
from observe.audit.kafka import audit_kafka
from observe.audit.memory import Memory
from observe.audit.signing import Signer
from shared.event.topics import stream_topic
from shared.proof.statement import NO_PREVIOUS, Statement
from shared.runtime.kafka.only_writer import OvertakenError

STREAM = "twice"
_PAUSE_S = 0.02
_REPO = Path(__file__).parents[3]


def stating_observer(kafka: str, folder: Path, lease_s: float, *, log: Path) -> Child:
    argv = [sys.executable, __file__, kafka, str(folder), str(lease_s)]
    return Child(log.stem, argv, log=log, env={"PYTHONPATH": str(_REPO)})


async def state(kafka: str, folder: Path) -> None:
    """State as the audit does: read earlier statements, continue from there, write."""
    while True:
        try:
            await _state(kafka, Memory(), Signer(folder))
        except OvertakenError:
            say("overtaken")
            await asyncio.sleep(1)


async def _state(kafka: str, memory: Memory, signer: Signer) -> None:
    async with audit_kafka(kafka) as asked:
        async for offset, signed in asked.statements(0):
            memory.read_statement(signed, offset)
        topic = stream_topic(STREAM)
        say("begun")
        while True:
            statement = Statement(
                stream=STREAM,
                minute_ms=60_000 * sum(of == topic for of, _ in memory.stated),
                revision=1,
                acked=1,
                id_count=1,
                root="",
                destinations={},
                issued_at_ms=0,
                previous=memory.chain.get(topic, NO_PREVIOUS),
            )
            signed = signer.sign(statement)
            await asked.publish_statements([signed])
            memory.read_statement(signed, 0)
            say("stated")
            await asyncio.sleep(_PAUSE_S)


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def _main(kafka: str, folder: str, lease_s: str) -> None:
    active = ActiveObserver(kafka, lambda: state(kafka, Path(folder)), lease_s=float(lease_s))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await active.run(stop)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
