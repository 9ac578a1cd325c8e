"""Two observers, one of which is active: statements form one chain, whatever happens to either."""

import asyncio
import signal
from pathlib import Path

import pytest

from deploy.cli.events.proofs import broken_link
from deploy.local.children import Child
from deploy.local.cluster import Cluster
from observe.audit.signing import Signer
from shared.event.topics import STATEMENTS, fixed_specs
from shared.proof.statement import SignedStatement
from shared.runtime.kafka.reader import open_reader
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.observe.published import proofs_of
from tests.support.observe.stating_observer import STREAM, stating_observer

pytestmark = pytest.mark.integration

# Kafka's own minimum.
LEASE_S = 6.0


def said(observer: Child) -> list[str]:
    return observer.log.read_text().splitlines()


def stated_since(observer: Child, count: int) -> bool:
    return said(observer)[count:].count("stated") > 10


async def chain(servers: str) -> list[SignedStatement]:
    """Return the statements as people who verify them see them."""
    async with open_reader(servers) as log:
        statements = await log.since([STATEMENTS], 0)
        # Other tests share the broker, and one of them writes an unreadable record.
        return [
            SignedStatement.from_json(one.value)
            async for one in statements.records()
            if (one.key or b"").startswith(f"{STREAM}:".encode())
        ]


def test_one_states_and_another_goes_on_when_it_dies_freezes_or_stops(
    kafka: Cluster, tmp_path: Path
) -> None:
    """Issue 15: two observers with one active; a frozen owner's writes are refused."""
    servers = kafka.bootstrap_servers

    async def create() -> None:
        async with topic_admin(servers) as admin:
            await admin.create_missing(fixed_specs(["30s"]))

    asyncio.run(create())
    # The key is the same on all machines.
    key = tmp_path / "key"
    Signer(key)

    def start(name: str) -> Child:
        return stating_observer(servers, key, LEASE_S, log=tmp_path / f"{name}.log")

    frozen, other = start("frozen"), None
    try:
        wait_until(lambda: stated_since(frozen, 0), what="the first makes statements")
        other = start("other")
        frozen.send(signal.SIGSTOP)
        count = len(said(frozen))
        wait_until(lambda: stated_since(other, 0), what="the other has taken over", timeout_s=60)
        frozen.send(signal.SIGCONT)
        # Long enough for the frozen one to have written, if it could.
        seen = len(said(other))
        wait_until(lambda: stated_since(other, seen), what="the other continues")
        other.kill()
        wait_until(
            lambda: stated_since(frozen, count), what="the first has the lease again", timeout_s=60
        )
        again = said(frozen)[count:]
        assert "stated" not in again[: again.index("begun")]
        last = start("last")
        seen = len(said(last))
        frozen.stop(30)
        wait_until(
            lambda: stated_since(last, seen), what="the last one has the lease", timeout_s=60
        )
        last.kill()
    finally:
        for one in (frozen, other):
            if one is not None:
                one.kill()
    ours = asyncio.run(chain(servers))
    assert broken_link(proofs_of(ours)) is None
    minutes = [one.statement.minute_ms for one in ours]
    assert minutes == [60_000 * n for n in range(len(ours))]
