"""The client for JavaScript passes its own tests, against a real gateway with Kafka in memory."""

import json
import os
import subprocess
from pathlib import Path

from tests.support.client_gateways import stored
from tests.support.fake_publisher import FakePublisher
from tests.support.gateway_fixtures import RunningGateway
from tests.support.programs import program
from tests.tidy import sources

CLIENT = sources.ROOT / "clients" / "javascript"


def test_the_clients_own_tests_pass_and_what_it_was_told_is_stored(
    publisher: FakePublisher, gateway: RunningGateway, tmp_path: Path
) -> None:
    accepted = tmp_path / "accepted.json"
    ended = subprocess.run(
        [program("node"), "--test", "test/"],
        cwd=CLIENT,
        env={**os.environ, "HIFI_GATEWAY": gateway.url, "HIFI_ACCEPTED": str(accepted)},
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(accepted.read_text())
    assert len(told) > 2_000
    assert sorted(told) == stored(publisher)
