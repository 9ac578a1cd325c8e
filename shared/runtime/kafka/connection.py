"""Returns the connection settings for Kafka, for our own clients and for Spark's."""

from collections.abc import Iterable
from typing import Any

from shared.runtime.kafka.settings import KafkaAccess, kafka_access

# By address, the access to a Kafka that is not configured by the environment: the embedded one.
_own: dict[str, KafkaAccess] = {}


def client_connection(bootstrap_servers: str) -> dict[str, Any]:
    """Return the arguments of every aiokafka client."""
    access = access_to(bootstrap_servers)
    return {"bootstrap_servers": bootstrap_servers, **access.for_client(bootstrap_servers)}


def spark_connection(bootstrap_servers: str) -> dict[str, str]:
    """Return the same settings for Spark's Kafka source and sink."""
    words = {"bootstrap.servers": bootstrap_servers, **access_to(bootstrap_servers).for_java()}
    return {f"kafka.{name}": value for name, value in words.items()}


def access_to(bootstrap_servers: str) -> KafkaAccess:
    """Return this process's access to a Kafka."""
    return _own.get(bootstrap_servers) or kafka_access()


def learn_access(addresses: Iterable[str], access: KafkaAccess) -> None:
    """Use this access for these addresses from now on, instead of the environment's."""
    _own.update(dict.fromkeys(addresses, access))
