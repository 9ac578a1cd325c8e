"""Changes the configuration in Kafka, for the pages of keys and of destinations."""

from shared.config.destination import Destination
from shared.runtime.kafka.config_topic import write_config, write_records


class KafkaConfig:
    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    async def remove(self, config_key: bytes) -> None:
        await write_records(self._bootstrap_servers, [(config_key, None)])

    async def store(self, destination: Destination) -> None:
        await write_config(self._bootstrap_servers, [destination])
