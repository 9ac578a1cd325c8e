"""Observe without its disk: what it knows is in Kafka, its key in the settings."""

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from observe.audit import kafka as audit
from observe.audit.kafka import audit_kafka
from observe.audit.signing import PUBLIC
from shared.config.destination import Destination
from shared.event.times import MINUTE_MS, minute_of
from shared.event.topics import AUDIT, fixed_specs
from shared.runtime.clock import now_ms
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support import cli_runs
from tests.support.scripted_destination import scripted_destination
from tests.support.stack_fixtures import PATIENCE_S, RunningHifi, wait_until


def test_a_new_machine_goes_on_with_the_same_chain(hifi: RunningHifi, tmp_path: Path) -> None:
    first_ms = minute_of(now_ms()) - 4 * MINUTE_MS
    folder = hifi.stack.settings.folder / "observe"
    mine = tmp_path / "ids.txt"

    def is_verified(minute_ms: int) -> bool:
        where = ["--stream", "moved", "--kafka", hifi.kafka, "--minute", str(minute_ms)]
        data = ["--data", str(hifi.stack.settings.folder)]
        run = cli_runs.run("verify", *where, *data, "--ids", str(mine), folder=tmp_path)
        run.wait()
        return run.out == "complete\n"

    with scripted_destination() as destination:
        hifi.add(Destination(stream="moved", name="to", url=destination.url))

        def send(minute_ms: int) -> None:
            ids = [f"{minute_ms}-{number}" for number in range(20)]
            events = [{"id": one, "time_ms": minute_ms + 7} for one in ids]
            assert hifi.post("moved", events).status_code == 200
            mine.write_text("\n".join(ids))
            wait_until(lambda: is_verified(minute_ms), what="the minute is stated", look_s=1)

        send(first_ms)
        key = (folder / PUBLIC).read_text()
        observe = hifi.stack.children["observe"]
        assert observe.stop(PATIENCE_S)
        shutil.rmtree(folder)
        hifi.stack._deaths_s.clear()
        hifi.stack.look_after()
        # What verifies it checks the chain from the first statement on.
        send(first_ms + MINUTE_MS)
        assert (folder / PUBLIC).read_text() == key


def test_the_newest_memory_that_was_written_whole_is_found(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A large one takes several transactions.
    monkeypatch.setattr(audit, "_PARTS_TOGETHER_MAX", 2)
    servers = kafka.bootstrap_servers
    small, large = b"some", random.Random(7).randbytes(1_300_000)

    async def scenario() -> None:
        async with topic_admin(servers) as admin:
            await admin.create_missing(fixed_specs([]))
        # Each looks as one that takes over, whose first word ends what the one before has begun.
        found = None
        for saved in (small, large, small, large):
            async with audit_kafka(servers) as asked:
                assert await asked.saved_memory() == found
                await asked.save_memory(saved)
                found = saved
        async with audit_kafka(servers) as asked:
            # Its writer dies after the first part.
            headers = (("part", b"0"), ("parts", b"3"), ("snapshot", b"cut off"))
            await asked._write([(AUDIT, b"0", b"x", headers)])
        async with audit_kafka(servers) as asked:
            assert await asked.saved_memory() == large
            await asked.save_memory(small)
        async with audit_kafka(servers) as asked:
            assert await asked.saved_memory() == small

    asyncio.run(scenario())
