"""Takes API keys off the configuration in Kafka, for the page of keys."""

from shared.runtime.config_topic import write_records


class KafkaKeys:
    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    async def remove(self, config_key: bytes) -> None:
        await write_records(self._bootstrap_servers, [(config_key, None)])
