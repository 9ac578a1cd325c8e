"""A bucket is slow, full, away or refusing: Hifi reports it, nobody waits, and nothing is lost."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from deploy.local.children import Child
from deploy.local.cluster import Cluster
from deploy.local.ports import pick_free
from shared.config.outside.store import Store
from shared.event.envelope import event_headers
from shared.event.record import RecordOut
from shared.event.topics import fixed_specs, stream_topic
from shared.proof.archived import ArchiveId
from shared.retry.schedule import RetrySchedule
from shared.runtime.archive.stores import OpenStore
from shared.runtime.clock import now_ms
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.secret_box import SecretBox
from tests.support.deploy.stack_fixtures import PATIENCE_S, wait_until
from tests.support.kafka.config_records import write_records
from tests.support.kafka.kafka_log import write_rows
from tests.support.pipelines.archive_runs import objects_of, wait_until_kept
from tests.support.pipelines.bucket_faults import FaultyBucket, Manner, faulty_bucket
from tests.support.pipelines.object_server import ObjectServer
from tests.support.pipelines.pipeline_runs import document, put, states

pytestmark = [pytest.mark.integration, pytest.mark.long]

_COUNT = 200


@dataclass
class Ground:
    """A pipelines process with two stores: a healthy folder, and a bucket that may be faulty."""

    kafka: str
    faulty: FaultyBucket
    bucket: OpenStore
    folder: OpenStore


@pytest.fixture(scope="module")
def ground(
    kafka: Cluster, object_server: ObjectServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    home, servers = tmp_path_factory.mktemp("faults"), kafka.bootstrap_servers
    asyncio.run(_make_topics(servers))
    well, direct = Store("folder", f"file://{home}/kept"), object_server.store("bucket")
    with faulty_bucket(object_server.endpoint) as faulty:
        child = Child(
            "pipelines",
            [sys.executable, "-m", "pipelines"],
            log=home / "pipelines.log",
            env={**os.environ, **_told(home, servers, well, direct, faulty, object_server)},
        )
        try:
            yield Ground(
                servers,
                faulty,
                object_server.bucket(direct),
                OpenStore(well, SecretBox.of(""), folders=home),
            )
        finally:
            faulty.manner = "well"
            child.stop(PATIENCE_S)


def _told(  # noqa: PLR0917 - all that the process is to know
    home: Path,
    servers: str,
    well: Store,
    direct: Store,
    faulty: FaultyBucket,
    object_server: ObjectServer,
) -> dict[str, str]:
    stores = home / "stores.toml"
    named = {"url": direct.url, "endpoint": faulty.endpoint, "region": direct.region}
    named |= {"access_key": direct.access_key, "secret_key": direct.secret_key or ""}
    lines = [f"{name} = {json.dumps(value)}" for name, value in named.items()]
    stores.write_text(
        "\n".join(["[folder]", f"url = {json.dumps(well.url)}", "[bucket]", *lines, ""])
    )
    (port,) = pick_free(1)
    mine = {
        "BOOTSTRAP_SERVERS": servers,
        "FOLDER": str(home / "pipelines"),
        "TABLES_FOLDER": str(home / "tables"),
        "METRICS_PORT": str(port),
        "HEAP_MB": "512",
        "ARCHIVE_EVERY_S": "0.5",
    }
    return {
        **{f"HIFI_PIPELINES_{name}": value for name, value in mine.items()},
        "HIFI_SECRET_KEYS": object_server.secret_keys,
        "HIFI_STORES": str(stores),
        "HIFI_STORE_FOLDERS": str(home),
    }


async def _make_topics(servers: str) -> None:
    async with topic_admin(servers) as admin:
        await admin.create_missing(fixed_specs([tier.name for tier in RetrySchedule().tiers]))


def _write(ground: Ground, stream: str) -> None:
    at_ms = now_ms()
    headers = event_headers(event_id="e", event_time_ms=at_ms, accepted_at_ms=at_ms)
    rows = [RecordOut(stream_topic(stream), None, b"{}", headers) for _ in range(_COUNT)]
    asyncio.run(write_rows(ground.kafka, rows))


# Each fault with words of its report; a slow bucket is not a fault.
_SAID: dict[Manner, str] = {
    "denied": "necessary privileges",
    "full": "the store",
    "away": "the store",
}


@pytest.mark.parametrize("manner", ["denied", "full", "away", "slow"])
def test_a_bad_bucket_is_said_holds_nobody_up_and_has_all_in_the_end(
    ground: Ground, manner: Manner
) -> None:
    stream = f"faulty-{manner}"
    bad, good = (
        document(f"{stream}-{store}", stream, to=[{"archive": store}])
        for store in ("bucket", "folder")
    )
    put(ground.kafka, bad, good)
    in_bucket, in_folder = (ArchiveId("default", stream, it.name) for it in (bad, good))

    def why() -> str:
        state = states(ground.kafka).get(bad.name)
        return "" if state is None else state.why

    try:
        _write(ground, stream)
        wait_until_kept(ground.bucket, in_bucket, _COUNT)
        ground.faulty.manner, before = manner, ground.faulty.requests
        _write(ground, stream)
        wait_until_kept(ground.folder, in_folder, 2 * _COUNT)
        if manner != "slow":
            wait_until(
                lambda: _SAID[manner] in why(), what=lambda: f"the fault is reported: {why()}"
            )
            assert sum(it.count for it in objects_of(ground.bucket, in_bucket)) == _COUNT
        ground.faulty.manner = "well" if manner != "slow" else manner
        objects = wait_until_kept(ground.bucket, in_bucket, 2 * _COUNT)
        assert sum(each.count for each in objects) == 2 * _COUNT, "an event is archived twice"
        assert all(
            one.partition != other.partition or one.end == other.first
            for one, other in pairwise(objects)
        )
        assert ground.faulty.requests > before or manner == "away"
        wait_until(lambda: not why(), what=lambda: f"no fault is reported: {why()}")
    finally:
        ground.faulty.manner = "well"
        gone = [(each.config_key, None) for each in (bad, good)]
        asyncio.run(write_records(ground.kafka, gone))
