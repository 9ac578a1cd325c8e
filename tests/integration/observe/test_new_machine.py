"""The audit keeps its memory in Kafka, where the next observer finds it."""

import asyncio
import random

import pytest

from deploy.local.cluster import Cluster
from observe.audit import kafka as audit
from observe.audit.kafka import audit_kafka
from shared.event.topics import AUDIT, fixed_specs
from shared.runtime.kafka.topic_admin import topic_admin


def test_the_newest_memory_that_was_written_whole_is_found(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A large memory takes several transactions.
    monkeypatch.setattr(audit, "_PARTS_TOGETHER_MAX", 2)
    servers = kafka.bootstrap_servers
    small, large = b"some", random.Random(7).randbytes(1_300_000)

    async def scenario() -> None:
        async with topic_admin(servers) as admin:
            await admin.create_missing(fixed_specs([]))
        # Each check acts as a new owner, whose first write ends the former owner's transaction.
        found = None
        for saved in (small, large, small, large):
            async with audit_kafka(servers) as asked:
                assert await asked.saved_memory() == found
                await asked.save_memory(saved)
                found = saved
        async with audit_kafka(servers) as asked:
            # A writer dies after the first part.
            headers = (("part", b"0"), ("parts", b"3"), ("snapshot", b"cut off"))
            await asked._write([(AUDIT, b"0", b"x", headers)])
        async with audit_kafka(servers) as asked:
            assert await asked.saved_memory() == large
            await asked.save_memory(small)
        async with audit_kafka(servers) as asked:
            assert await asked.saved_memory() == small

    asyncio.run(scenario())
