"""Writes the config topic without the control plane, to set a scene for a benchmark or a test."""

from collections.abc import Iterable

from shared.config.model import ConfigObject
from shared.event.topics import CONFIG
from shared.runtime.kafka.clients import new_producer, running


async def write_config(bootstrap_servers: str, objects: Iterable[ConfigObject]) -> None:
    """Store config objects; return after Kafka has reported each."""
    await write_records(bootstrap_servers, [(item.config_key, item.to_json()) for item in objects])


async def write_records(
    bootstrap_servers: str, records: Iterable[tuple[bytes, bytes | None]]
) -> None:
    """Store config records as they are; None as a value removes the object."""
    async with running(new_producer(bootstrap_servers), bootstrap_servers) as producer:
        for key, value in records:
            await producer.send_and_wait(CONFIG, key=key, value=value)
