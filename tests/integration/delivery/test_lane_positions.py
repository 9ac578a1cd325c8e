"""A lane's position is where ordinary Kafka lag tools look for it."""

import asyncio

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from deploy.local.cluster import Cluster
from shared.event.record import KafkaPartition
from shared.event.topics import fixed_specs, stream_spec
from shared.runtime.kafka.lane_positions import LaneGroups, LanePositions
from shared.runtime.kafka.topic_admin import topic_admin


def test_positions_are_those_of_a_consumer_group(kafka: Cluster) -> None:
    retry_spec = fixed_specs(["30s"])[0]

    async def scenario() -> None:
        async with topic_admin(kafka.bootstrap_servers) as admin:
            await admin.create_missing([stream_spec("places"), retry_spec])
        positions = LanePositions(kafka.bootstrap_servers)
        stream = "hifi.stream.places"
        positions.enter("places/to", {KafkaPartition(stream, 0): 5, KafkaPartition(stream, 3): 7})
        positions.enter("places/too", {KafkaPartition(retry_spec.name, 1): 2})
        positions.enter("places/back", {KafkaPartition("hifi.stream.places", 2): 4})
        positions.enter("places/new", {})
        async with asyncio.timeout(60):
            # For the first group ever, Kafka creates its topic of groups.
            while positions._newest:
                await positions.commit()
                await asyncio.sleep(0.1)
        await positions.close()
        # A lane that has lost its marks asks like this.
        assert await positions.last(["places/back", "places/never"]) == {
            "places/back": {KafkaPartition("hifi.stream.places", 2): 4},
            "places/never": {},
        }
        async with LaneGroups(kafka.bootstrap_servers) as groups:
            assert await groups.position("places/to") == {
                ("hifi.stream.places", 0): 5,
                ("hifi.stream.places", 3): 7,
            }
            assert await groups.position("places/too") == {(retry_spec.name, 1): 2}
            assert await groups.position("places/back") == {("hifi.stream.places", 2): 4}
            assert await groups.position("places/never") == {}
        tool = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
        await tool.start()
        try:
            seen = await tool.list_consumer_group_offsets("hifi.lane.places.to")
        finally:
            await tool.close()
        assert seen[TopicPartition("hifi.stream.places", 3)].offset == 7

    asyncio.run(scenario())
