"""A topic that is deleted and recreated under its name has another id."""

import asyncio
import re

import pytest

from deploy.local.cluster import Cluster
from shared.event.topics import TopicSpec
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.kafka.lookup.topic_ids import topic_ids
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.kafka.topics_anew import make_anew

pytestmark = pytest.mark.integration


def test_each_topic_has_its_id_and_another_one_when_it_is_made_anew(kafka: Cluster) -> None:
    servers, one, two = kafka.bootstrap_servers, "ids-one", "ids-two"

    async def ids() -> dict[str, str]:
        async with LogClient(servers) as log:
            return await topic_ids(log, [one, two, "ids-none"])

    async def look() -> None:
        async with topic_admin(servers) as admin:
            await admin.create_missing([TopicSpec(each, 3, {}) for each in (one, two)])
        before = await ids()
        assert before.keys() == {one, two}, "asking creates no topic"
        assert all(re.fullmatch(r"[\w-]{22}", each) for each in before.values())
        assert await ids() == before
        await make_anew(servers, TopicSpec(one, 3, {}))
        after = await ids()
        assert (after[one] != before[one], after[two]) == (True, before[two])

    asyncio.run(look())
