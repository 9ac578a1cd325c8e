"""Says how to reach Kafka: the one place for it, for our own clients and for Spark's."""

from typing import Any


def client_connection(bootstrap_servers: str) -> dict[str, Any]:
    """What each aiokafka client is given."""
    return {"bootstrap_servers": bootstrap_servers}


def spark_connection(bootstrap_servers: str) -> dict[str, str]:
    """The same for Spark's Kafka source and sink."""
    return {"kafka.bootstrap.servers": bootstrap_servers}
