"""Every promised event is in the log after a kill of the gateway, the line or the sender."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from hifi_client import Fate, Sender, Sent
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.gateway_process import Gateway, new_stream, running, stored_ids
from tests.support.servers.cut_line import CutLine, cut_line
from tests.support.suite.programs import program
from tests.tidy import sources

pytestmark = pytest.mark.integration

SENDERS = 2
# Enough events for some requests of each sender.
ROUND_EVENTS = 2_000
DRAIN_S = 120


@dataclass
class Replaceable:
    """A gateway at one address that is killed and started again."""

    kafka: Cluster
    line: CutLine
    resources: ExitStack = field(default_factory=ExitStack)
    gateway: Gateway | None = None

    def start(self) -> None:
        self.gateway = self.resources.enter_context(running(self.kafka.bootstrap_servers))
        self.connect()

    def connect(self) -> None:
        assert self.gateway is not None
        self.line.target = int(self.gateway.url.rpartition(":")[2])

    def kill(self) -> None:
        assert self.gateway is not None
        self.gateway.process.send_signal(signal.SIGKILL)
        self.resources.close()


@contextmanager
def replaceable(kafka: Cluster) -> Iterator[Replaceable]:
    with cut_line(None) as line, ExitStack() as resources:
        gateway = Replaceable(kafka, line, resources)
        yield gateway


@dataclass
class Senders:
    """Threads that send through one sender until `stop` is set."""

    hifi: Sender
    sent: list[Sent] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def accepted(self) -> int:
        return sum(one.outcome is not None for one in self.sent)

    def run(self) -> None:
        while not self.stop.is_set():
            self.sent.append(self.hifi.send({"text": "x" * 100}))
            # These events are sent as one text.
            self.sent.extend(self.hifi.send_many([{"text": "y" * 100}] * 7))

    @contextmanager
    def at_work(self) -> Iterator[None]:
        threads = [threading.Thread(target=self.run) for _ in range(SENDERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stop.set()
            for thread in threads:
                thread.join(60)

    def wait_for_more(self, what: str) -> None:
        enough = self.accepted() + ROUND_EVENTS
        wait_until(lambda: self.accepted() >= enough, what=f"more events are accepted after {what}")


def sent_through(kafka: Cluster, *, kills: int, cuts: int, silences: int) -> None:
    """Cause this much trouble of each kind under load; then find all promised events in the log."""
    stream = new_stream(kafka.bootstrap_servers)
    with replaceable(kafka) as gateway:
        gateway.start()
        url = f"http://127.0.0.1:{gateway.line.port}"
        options = {"memory_bytes_max": 200_000, "timeout_s": 2, "linger_s": 0.01}
        with Sender(url, stream, batch_count_max=50, **options) as hifi:
            senders = Senders(hifi)
            with senders.at_work():
                senders.wait_for_more("the start")
                for _ in range(kills):
                    gateway.line.target = None
                    gateway.kill()
                    gateway.start()
                    senders.wait_for_more("a kill")
                for _ in range(cuts):
                    gateway.line.cut()
                    time.sleep(0.3)
                    gateway.connect()
                    senders.wait_for_more("a cut")
                for _ in range(silences):
                    gateway.line.is_silent = True
                    time.sleep(2.5)
                    gateway.line.is_silent = False
                    senders.wait_for_more("a silence")
            assert hifi.flush(DRAIN_S), hifi.problem
            fates = Counter(one.wait(0).fate for one in senders.sent)
    stored = stored_ids(kafka.bootstrap_servers, stream)
    assert set(fates) == {Fate.ACCEPTED}
    missing = {one.id for one in senders.sent} - set(stored)
    assert not missing
    figures(accepted=fates.total(), stored=len(stored))


def test_what_was_accepted_is_in_the_log_after_a_kill_a_cut_and_a_silence(kafka: Cluster) -> None:
    sent_through(kafka, kills=1, cuts=1, silences=1)


@pytest.mark.long
@pytest.mark.timeout(540)
def test_what_was_accepted_is_in_the_log_after_twenty_of_each(kafka: Cluster) -> None:
    sent_through(kafka, kills=20, cuts=20, silences=20)


def figures(**found: int) -> None:
    """Print figures when a long run has -s."""
    sys.stdout.write(f"{found}\n")


def _has_more(lines: list[str], nth: int) -> bool:
    return len(lines) > (nth + 1) * ROUND_EVENTS


@pytest.fixture(params=["node", "go"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Build and return a program that sends through another language's client."""
    if request.param == "node":
        return [program("node"), "clients/javascript/trials/under_way.js"]
    build = [program("go"), "build", "-o", str(tmp_path / "underway"), "./trials/underway"]
    subprocess.run(build, cwd=sources.ROOT / "clients" / "go", check=True, timeout=240)
    return [str(tmp_path / "underway")]


def told(client: list[str], kafka: Cluster, *, kills: int) -> None:
    """Kill the gateway while a client in another language sends; then check all its promises."""
    stream = new_stream(kafka.bootstrap_servers)
    with replaceable(kafka) as gateway:
        gateway.start()
        url = f"http://127.0.0.1:{gateway.line.port}"
        process = subprocess.Popen(
            [*client, url, stream],
            cwd=sources.ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        lines: list[str] = []
        reader = threading.Thread(target=lines.extend, args=[process.stdout])
        reader.start()
        try:
            for nth in range(kills):
                wait_until(partial(_has_more, lines, nth), what="more events are accepted")
                gateway.line.target = None
                gateway.kill()
                gateway.start()
                gateway.line.cut()
                time.sleep(0.3)
                gateway.connect()
            process.stdin.close()
            assert process.wait(DRAIN_S) == 0
        finally:
            process.kill()
            process.wait(30)
            reader.join(30)
            process.stdout.close()
    assert lines.pop() == "done\n"
    fates, ids = zip(*(line.split() for line in lines), strict=True)
    stored = stored_ids(kafka.bootstrap_servers, stream)
    assert set(fates) == {"accepted"}
    assert not set(ids) - set(stored)
    figures(accepted=len(ids), stored=len(stored))


def test_what_other_clients_were_told_is_in_the_log_after_a_kill_and_a_cut(
    client: list[str], kafka: Cluster
) -> None:
    told(client, kafka, kills=1)


@pytest.mark.long
@pytest.mark.timeout(540)
def test_what_other_clients_were_told_is_in_the_log_after_twenty_of_each(
    client: list[str], kafka: Cluster
) -> None:
    told(client, kafka, kills=20)


@contextmanager
def spooling(url: str, stream: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that sends, and kill it when the block ends."""
    program = [sys.executable, "-m", "tests.support.gateway.spooling_client"]
    process = subprocess.Popen(
        [*program, url, stream, str(folder / "spool"), str(folder / "yes")],
        cwd=sources.ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "begun\n"
        yield process
    finally:
        process.kill()
        process.wait(30)
        process.stdout.close()


def spooled_through(kafka: Cluster, folder: Path, *, kills: int) -> None:
    """Kill the process this often, the first time with a full spool, and let the next one send."""
    stream = new_stream(kafka.bootstrap_servers)
    with replaceable(kafka) as gateway:
        url = f"http://127.0.0.1:{gateway.line.port}"
        with spooling(url, stream, folder) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "full\n"
        gateway.start()
        for nth in range(kills - 1):
            with spooling(url, stream, folder):
                time.sleep(random.uniform(0.05, 1.0))
                if nth % 2:
                    gateway.line.cut()
                    time.sleep(0.5)
            gateway.connect()
        with Sender(url, stream, spool=folder / "spool") as hifi:
            assert hifi.flush(DRAIN_S), hifi.problem
    # The last line may be cut short.
    yes = set((folder / "yes").read_text().rpartition("\n")[0].splitlines())
    stored = stored_ids(kafka.bootstrap_servers, stream)
    assert len(yes) > 1_000
    assert not yes - set(stored)
    figures(said_yes=len(yes), stored=len(stored), ids=len(set(stored)))


def test_what_a_full_spool_said_yes_to_is_sent_after_its_process_was_killed(
    kafka: Cluster, tmp_path: Path
) -> None:
    spooled_through(kafka, tmp_path, kills=2)


@pytest.mark.long
@pytest.mark.timeout(540)
def test_what_a_spool_said_yes_to_is_in_the_log_after_twenty_kills(
    kafka: Cluster, tmp_path: Path
) -> None:
    spooled_through(kafka, tmp_path, kills=20)
