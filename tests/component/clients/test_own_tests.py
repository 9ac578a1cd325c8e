"""Clients of other languages pass their own tests, against a real gateway with Kafka in memory."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.gateway.client_gateways import stored
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway
from tests.support.suite.programs import program
from tests.tidy import sources

CLIENTS = sources.ROOT / "clients"


@pytest.mark.parametrize(
    ("client", "runner", "arguments", "untold"),
    [
        ("javascript", "node", ["--test", "test/"], []),
        # Its example does not report the event that the gateway accepted.
        ("go", "go", ["test", "-count=1", "./..."], ["go-example"]),
    ],
    ids=["javascript", "go"],
)
# Go builds its own library the first time.
@pytest.mark.timeout(600)
def test_a_clients_own_tests_pass_and_what_it_was_told_is_stored(
    publisher: FakePublisher,
    gateway: RunningGateway,
    tmp_path: Path,
    *,
    client: str,
    runner: str,
    arguments: list[str],
    untold: list[str],
) -> None:
    accepted = tmp_path / "accepted.json"
    ended = subprocess.run(
        [program(runner), *arguments],
        cwd=CLIENTS / client,
        env={**os.environ, "HIFI_GATEWAY": gateway.url, "HIFI_ACCEPTED": str(accepted)},
        capture_output=True,
        check=False,
        text=True,
        timeout=500,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(accepted.read_text())
    assert len(told) > 2_000
    assert sorted([*told, *untold]) == stored(publisher)
