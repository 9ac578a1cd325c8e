"""If a destination is added after minutes of its stream were signed, its line adds up anyway."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from deploy.cli.events.proofs import ProvenLine
from deploy.cli.events.verify import PUBLIC
from shared.config.destination import Destination
from shared.event.times import MINUTE_MS, minute_of
from shared.runtime.clock import now_ms
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.servers.scripted_destination import always, scripted_destination
from tests.tidy import sources

pytestmark = pytest.mark.integration

STREAM = "addedlater"
VERIFIER = sources.ROOT / "examples" / "python" / "verify_statements.py"


def test_a_destination_that_is_added_later_has_all_that_it_was_due(
    hifi: RunningHifi, tmp_path: Path
) -> None:
    minute_ms = minute_of(now_ms()) - 4 * MINUTE_MS

    def post(*names: str) -> None:
        events = [{"id": name, "time_ms": minute_ms + 7} for name in names]
        assert hifi.post(STREAM, events).status_code == 200

    def lines() -> dict[str, ProvenLine]:
        said = [one for one in hifi.statements(STREAM, minute_ms) if one.minute_ms == minute_ms]
        return {line.name: line for line in said[-1].lines} if said else {}

    def is_due(count: int, *names: str) -> bool:
        there = lines()
        return there.keys() == set(names) and all(
            (line.due, line.delivered, line.waiting, line.dead, line.lost)
            == (count, count, 0, 0, {})
            for line in there.values()
        )

    with scripted_destination(always(200)) as destination:
        hifi.add(Destination(STREAM, "a", destination.url))
        post("one", "two", "three")
        wait_until(lambda: is_due(3, "a"), what=lambda: f"a has three: {lines()}", timeout_s=120)
        hifi.add(Destination(STREAM, "b", destination.url))
        wait_until(
            lambda: is_due(3, "a", "b"),
            what=lambda: f"b has its line, too: {lines()}",
            timeout_s=120,
        )
        post("four")
        wait_until(lambda: is_due(4, "a", "b"), what=lambda: f"four each: {lines()}", timeout_s=120)
    # An independent program accepts the chain.
    page, ids = tmp_path / "page.json", tmp_path / "ids"
    answer = httpx.get(f"{hifi.gateway}/v1/streams/{STREAM}/statements?limit=1000", timeout=30)
    page.write_text(answer.text)
    ids.write_text("one\ntwo\nthree\nfour\n")
    key = hifi.stack.settings.folder / "observe" / PUBLIC
    asked = ["--key", str(key), "--minute", str(minute_ms), "--ids", str(ids), str(page)]
    checked = subprocess.run(
        [sys.executable, str(VERIFIER), *asked], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert len(json.loads(answer.text)["statements"]) >= 3
    assert "b: 4 due, 4 delivered" in checked.stdout
