"""Kafka is dead for a minute under wrk's full load: bounded memory, quick refusals, no loss."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmarks.wrk import require_wrk
from deploy.local.cluster import Cluster
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.gateway_process import Gateway, new_stream, running, stored_ids
from tests.support.kafka.broker_faults import frozen, killed

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]

CONNECTIONS = 32
EVENTS = 100
RSS_MB_MAX = 256
ANSWER_S_MAX = 2.0
# Events that Kafka got before it died are unknown until the ack deadline, 10 s.
DYING_S, DEAD_S = 13, 60
ALIVE_S = 4
# wrk cannot tell which answer belongs to which request. But events without ids get theirs from the
# request's number, which the answer repeats, so promised events can be looked up by id.
SCRIPT = """
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
local event = '{"pad":"' .. string.rep("x", 480) .. '"}'
wrk.body = "[" .. string.rep(event .. ",", EVENTS - 1) .. event .. "]"
local told = io.open("TOLD", "w")
function response(status, headers, body)
  told:write(status, " ", status < 300 and body or "", "\\n")
  told:flush()
end
function done(summary, latency, requests)
  io.write("max_us ", latency.max, "\\n")
end
"""


@dataclass
class WrkAnswers:
    """The answers that one run of wrk got."""

    statuses: Counter[int] = field(default_factory=Counter)
    promised: set[str] = field(default_factory=set)
    longest_s: float = 0.0


def load(gateway: Gateway, stream: str, folder: Path, *, duration_s: float) -> WrkAnswers:
    script, answers = folder / "load.lua", folder / "answers"
    script.write_text(SCRIPT.replace("EVENTS", str(EVENTS)).replace("TOLD", str(answers)))
    run = subprocess.run(
        [
            "wrk",
            "-t1",
            f"-c{CONNECTIONS}",
            f"-d{duration_s:g}s",
            "--timeout=30s",
            f"-s{script}",
            f"{gateway.url}/v1/streams/{stream}/events",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=duration_s + 60,
    )
    told = WrkAnswers(longest_s=float(run.stdout.split("max_us ")[1]) / 1_000_000)
    for line in answers.read_text().splitlines():
        status, _, body = line.partition(" ")
        told.statuses[int(status)] += 1
        if body:
            said = json.loads(body)
            left_out = {one["index"] for one in said.get("results", ())}
            number = said["request_id"]
            told.promised |= {f"{number}-{n}" for n in range(EVENTS) if n not in left_out}
    return told


class Memory(threading.Thread):
    """A thread that samples the resident memory of a process."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.most_mb = 0.0
        self._status = Path(f"/proc/{pid}/status")
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.2):
            line = next(x for x in self._status.read_text().splitlines() if x.startswith("VmRSS"))
            self.most_mb = max(self.most_mb, int(line.split()[1]) / 1_000)

    @contextmanager
    def watching(self) -> Iterator["Memory"]:
        self.start()
        try:
            yield self
        finally:
            self._over.set()
            self.join()


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_minute_without_kafka_under_full_load(
    kafka: Cluster, tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    require_wrk()
    stream = new_stream(kafka.bootstrap_servers)
    broker = kafka.broker_ids[0]
    with (
        running(kafka.bootstrap_servers) as gateway,
        Memory(gateway.process.pid).watching() as memory,
    ):
        alive = load(gateway, stream, tmp_path, duration_s=ALIVE_S)
        assert set(alive.statuses) == {200}
        dying = threading.Thread(
            target=lambda: found.append(load(gateway, stream, tmp_path, duration_s=DYING_S))
        )
        found: list[WrkAnswers] = []
        dying.start()
        time.sleep(1)
        with (frozen if how == "stopped" else killed)(kafka, broker):
            dying.join()
            dead = load(gateway, stream, tmp_path, duration_s=DEAD_S - DYING_S)
        wait_until(gateway.is_ready, what="the gateway is ready", timeout_s=60)
        again = load(gateway, stream, tmp_path, duration_s=ALIVE_S)
        promised = alive.promised | found[0].promised | dead.promised | again.promised
        with capsys.disabled():
            sys.stdout.write(
                f"\n{how}: dying {dict(found[0].statuses)}, dead {dict(dead.statuses)} within"
                f" {dead.longest_s:.2f} s, again {dict(again.statuses)}, at most"
                f" {memory.most_mb:.0f} MB, {len(promised):,} events promised\n"
            )
        assert set(found[0].statuses) <= {200, 207, 503, 504}
        assert set(dead.statuses) == {503}
        assert dead.longest_s <= ANSWER_S_MAX
        assert again.statuses[200] > 0
        assert memory.most_mb < RSS_MB_MAX
    missing = promised - set(stored_ids(kafka.bootstrap_servers, stream))
    assert not missing, f"{len(missing)} of {len(promised)} events"
