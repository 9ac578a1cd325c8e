"""Asks one broker what it knows of its cluster, over Kafka's own protocol."""

from dataclasses import dataclass

from aiokafka.protocol.metadata import MetadataRequest

from shared.runtime.kafka.clients import new_client, running
from shared.runtime.setup_error import KafkaUnavailableError

# A broker that is up answers in a few ms; one that is starting holds the request until it is up.
_REQUEST_TIMEOUT_MS = 2_000


@dataclass(frozen=True, slots=True)
class BrokerView:
    """What one broker knows of its cluster."""

    brokers: frozenset[int]
    under_replicated: int


async def view_of(host: str, port: int) -> BrokerView | None:
    """What the broker on this port knows; None while it does not answer."""
    address = f"{host}:{port}"
    client = new_client(address, request_timeout_ms=_REQUEST_TIMEOUT_MS)
    try:
        async with running(client, address):
            node = client.get_random_node()
            # Any broker may be drawn from the list; only the one on this port is asked.
            for broker in client.cluster.brokers():
                if broker.port == port:
                    node = broker.nodeId
            answer = (await client.send(node, MetadataRequest(None))).to_object()
    except KafkaUnavailableError:
        return None
    return BrokerView(
        brokers=frozenset(broker["node_id"] for broker in answer["brokers"]),
        under_replicated=sum(
            len(partition["isr"]) < len(partition["replicas"]) or partition["leader"] < 0
            for topic in answer["topics"]
            for partition in topic["partitions"]
        ),
    )
