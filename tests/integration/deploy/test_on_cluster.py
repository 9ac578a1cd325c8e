"""Lanes and the audit run on a Spark cluster, and log in to a secured Kafka from there."""

import contextlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local.stack import Stack
from shared.config.destination import Destination
from shared.event.times import MINUTE_MS, minute_of
from shared.runtime.clock import now_ms
from tests.integration.deploy.test_secure import LockedHifi
from tests.support.deploy.stack_fixtures import (
    PATIENCE_S,
    QUICK_INTERVALS,
    stack_settings,
    wait_until,
)
from tests.support.deploy.standalone_spark import TASK_PLACES, standalone
from tests.support.servers.scripted_destination import scripted_destination

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]

COUNT = 50


def test_executors_get_what_they_need_and_nobody_else_does(
    tmp_path: Path, jars_cache: Path
) -> None:
    settings = replace(stack_settings(tmp_path / "data", jars_cache), secure=True)
    ids, minute_ms = tmp_path / "ids.txt", minute_of(now_ms()) - 2 * MINUTE_MS
    with standalone(tmp_path / "spark", task_places=3 * TASK_PLACES) as spark:
        cluster = {
            "HIFI_SPARK_MASTER": spark.address,
            "SPARK_CONF_DIR": str(spark.conf),
            "HIFI_DELIVERY_TASK_PLACES": str(TASK_PLACES),
        }
        stack = Stack(settings, environ={**os.environ, **QUICK_INTERVALS, **cluster}, say=print)
        stack.start(lambda _: None)
        try:
            hifi = LockedHifi(stack, tmp=tmp_path)
            with scripted_destination() as shop:
                hifi.add(Destination("spread", "to", shop.url))
                events = [{"id": f"e{n}", "time_ms": minute_ms + 7} for n in range(COUNT)]
                assert hifi.post("spread", events).status_code == 200
                assert shop.wait_for(lambda: len(shop.accepted_ids) == COUNT, timeout_s=PATIENCE_S)
            ids.write_text("".join(f"e{n}\n" for n in range(COUNT)))
            of_it = ["--stream", "spread", "--minute", str(minute_ms), "--ids", str(ids)]
            wait_until(
                lambda: hifi.command("verify", *of_it, "--data", str(hifi.folder)).wait() == 0,
                what=lambda: f"there is a statement: {hifi.command('verify', *of_it).err}",
                timeout_s=2 * PATIENCE_S,
                look_s=2,
            )
            # One executor of delivery, and one of the audit.
            (worker,) = spark.workers
            assert len(spark.executors(worker)) >= 2
            keeper = hifi.folder / "kafka" / "lock" / "passwords.json"
            secrets = [each.encode() for each in json.loads(keeper.read_text()).values()]
            told = [*spark.folder.rglob("*"), *Path("/proc").glob("[0-9]*/cmdline")]
            for path in told:
                # Some processes have already ended.
                with contextlib.suppress(OSError):
                    text = path.read_bytes()
                    assert not any(secret in text for secret in secrets), path
        finally:
            stack.stop()
