"""Keys are replaced without setting any secret again: real Kafka, a gateway, the real command."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from deploy.cli.commands import app
from deploy.local.cluster import Cluster
from shared.config.credentials import Bearer, secrets_of
from shared.config.destination import Destination
from shared.event.topics import fixed_specs
from shared.runtime.archive.stores import read_stores
from shared.runtime.kafka.config_topic import read_config
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.secret_box import SecretBox, new_key
from shared.runtime.setup_error import UsageError
from tests.support.gateway.gateway_process import running
from tests.support.kafka.config_records import write_config, write_records

pytestmark = pytest.mark.integration

OLD, NEW = new_key(), new_key()
PLAIN = Destination("rotating", "plain", "https://1.1.1.1/")


def sealed_with(key: str, name: str) -> Destination:
    secret = SecretBox([key]).seal("t0ken", owner=f"rotating/{name}")
    return Destination("rotating", name, "https://1.1.1.1/", auth=Bearer(secret))


@pytest.fixture
def servers(kafka: Cluster) -> Iterator[str]:
    written = [PLAIN, sealed_with(OLD, "one"), sealed_with(NEW, "two")]

    async def prepare() -> None:
        async with topic_admin(kafka.bootstrap_servers) as admin:
            await admin.create_missing(fixed_specs([]))
        await write_config(kafka.bootstrap_servers, written)

    asyncio.run(prepare())
    yield kafka.bootstrap_servers
    gone = [(destination.config_key, None) for destination in written]
    asyncio.run(write_records(kafka.bootstrap_servers, gone))


def rotate(servers: str, keys: str, *more: str) -> Result:
    """Rotate secrets through a gateway that has these keys."""
    with running(servers, HIFI_SECRET_KEYS=keys) as gateway:
        told = ["--gateway", gateway.url, "--secret-keys", keys, *more]
        return CliRunner().invoke(app, ["secrets", "rotate", *told])


def stored(servers: str) -> dict[str, Destination]:
    found = asyncio.run(read_config(servers)).destinations
    return {each.name: each for each in found.values() if each.stream == "rotating"}


def test_after_a_rotation_the_newest_key_opens_everything(servers: str, tmp_path: Path) -> None:
    before = stored(servers)
    sealed, stores = SecretBox([OLD]).seal("t0ken", owner="store:backup"), tmp_path / "stores.toml"
    stores.write_text(f'[backup]\nurl = "s3://b"\nsecret_key = "{sealed}"\n')
    result = rotate(servers, f"{NEW},{OLD}", "--stores", str(stores))
    assert result.exit_code == 0, result.output
    assert "2 sealed again, 1 were already" in result.stderr
    anew = read_stores(stores)["backup"].secret_key
    assert anew is not None
    assert SecretBox([NEW]).unseal(anew, owner="store:backup") == "t0ken"
    after = stored(servers)
    newest = SecretBox([NEW])
    for destination in after.values():
        for _, sealed in secrets_of(destination.to_fields()):
            assert newest.unseal(sealed, owner=destination.id) == "t0ken"
    # Destinations that need no change are not changed: no lane restarts for nothing.
    assert (after["plain"], after["two"]) == (before["plain"], before["two"])
    assert "0 sealed again, 2 were already" in rotate(servers, NEW).stderr


def test_what_no_key_opens_is_named_and_stays(servers: str) -> None:
    before = stored(servers)
    result = rotate(servers, NEW)
    assert isinstance(result.exception, UsageError)
    assert "rotating/one" in str(result.exception)
    assert stored(servers) == before


def test_without_keys_there_is_nothing_to_rotate_with(servers: str) -> None:
    result = rotate(servers, "")
    assert isinstance(result.exception, UsageError)
    assert "HIFI_SECRET_KEYS is not set" in str(result.exception)
