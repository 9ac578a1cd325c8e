"""Says how to reach Kafka: the one place for it, for our own clients and for Spark's."""

from collections.abc import Iterable
from typing import Any

from shared.runtime.kafka.settings import KafkaAccess, kafka_access

# How Kafkas are entered of which the environment does not tell: the embedded one, by its address.
_own: dict[str, KafkaAccess] = {}


def client_connection(bootstrap_servers: str) -> dict[str, Any]:
    """The arguments of each aiokafka client."""
    return {"bootstrap_servers": bootstrap_servers, **access_to(bootstrap_servers).for_client()}


def spark_connection(bootstrap_servers: str) -> dict[str, str]:
    """The same for Spark's Kafka source and sink."""
    words = {"bootstrap.servers": bootstrap_servers, **access_to(bootstrap_servers).for_java()}
    return {f"kafka.{name}": value for name, value in words.items()}


def access_to(bootstrap_servers: str) -> KafkaAccess:
    """How a Kafka is entered by this process."""
    return _own.get(bootstrap_servers) or kafka_access()


def learn_access(addresses: Iterable[str], access: KafkaAccess) -> None:
    """From now on, enter a Kafka of these addresses so, whatever the environment says."""
    _own.update(dict.fromkeys(addresses, access))
