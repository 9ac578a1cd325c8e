"""Settings move to another Kafka with `hifi export --everything` and `hifi import`."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from deploy.cli.applying.whole_export import lines_of, objects_of, read_lines
from deploy.cli.commands import app
from deploy.local.cluster import Cluster
from shared.config.configuration import Configuration, Stream
from shared.config.credentials import Bearer
from shared.config.destination import Destination
from shared.runtime.kafka.config_topic import read_config
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.secret_box import SecretBox, new_key
from shared.runtime.setup_error import SetupError, UsageError

pytestmark = pytest.mark.integration

KEY = new_key()
SHOP = Destination(
    "moved",
    "shop",
    "https://1.1.1.1/",
    auth=Bearer(token=SecretBox([KEY]).seal("token", owner="moved/shop")),
)


def imported(kafka: Cluster, file: Path, *, key: str = KEY) -> Result:
    copies = {"HIFI_KAFKA_REPLICAS": "1", "HIFI_KAFKA_IN_SYNC_MIN": "1"}
    words = ["import", str(file), "--kafka", kafka.bootstrap_servers, "--data", str(file.parent)]
    return CliRunner().invoke(app, words, env={"HIFI_SECRET_KEYS": key, **copies})


def found(kafka: Cluster) -> Configuration:
    try:
        return asyncio.run(read_config(kafka.bootstrap_servers))
    except SetupError:
        # Kafka is empty: nobody has made Hifi's topics.
        return Configuration()


def written(file: Path, configuration: Configuration) -> Path:
    file.write_text("".join(f"{line}\n" for line in lines_of(configuration)))
    return file


def test_settings_keys_and_secrets_move_whole_or_not_at_all(kafka: Cluster, tmp_path: Path) -> None:
    before = found(kafka)
    wanted = Configuration(
        streams={"moved": Stream("moved", partition_count=3)}, destinations={SHOP.id: SHOP}
    )
    file = written(tmp_path / "hifi.ndjson", wanted)
    refused = imported(kafka, file, key=new_key())
    assert isinstance(refused.exception, UsageError)
    assert "moved/shop: set HIFI_SECRET_KEYS" in str(refused.exception)
    assert found(kafka) == before

    done = imported(kafka, file)
    assert done.exit_code == 0, done.output
    assert "2 objects imported, 0 were there already." in done.output
    assert "2 were there already" in imported(kafka, file).output
    after = found(kafka)
    assert after.destinations[SHOP.id] == SHOP
    assert asyncio.run(partitions(kafka, "hifi.stream.moved")) == 3

    # One object that differs stops the whole import.
    other = replace(
        wanted,
        streams={"more": Stream("more")},
        destinations={SHOP.id: replace(SHOP, timeout_s=1)},
    )
    refused = imported(kafka, written(tmp_path / "other.ndjson", other))
    assert "destination:moved/shop" in str(refused.exception)
    assert found(kafka) == after

    words = ["export", "--everything", "--kafka", kafka.bootstrap_servers]
    exported = CliRunner().invoke(app, words)
    assert exported.exit_code == 0, exported.output
    assert list(objects_of(read_lines(exported.stdout.splitlines()))) == list(objects_of(after))


async def partitions(kafka: Cluster, topic: str) -> int:
    async with topic_admin(kafka.bootstrap_servers) as admin:
        return (await admin.states([topic]))[topic].partition_count
