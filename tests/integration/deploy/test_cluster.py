"""The promises of the embedded Kafka cluster, with real brokers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from deploy.local.children import Child
from deploy.local.cluster import Cluster
from shared.runtime.defaults import HOST
from shared.runtime.setup_error import SetupError
from tests.support.kafka.broker_faults import frozen, restart, stop_broker, wait_in_sync
from tests.support.kafka.kafka_log import read_all

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

_SEND_TIMEOUT_MS = 4_000


def test_a_second_start_finds_its_data_again(tmp_path: Path, jars_cache: Path) -> None:
    with Cluster(folder=tmp_path, cache=jars_cache) as first:
        servers = first.bootstrap_servers
        asyncio.run(_create_topic(servers, "kept"))
        assert asyncio.run(_acknowledged(servers, "kept", b"one"))
    with Cluster(folder=tmp_path, cache=jars_cache) as second:
        assert second.bootstrap_servers == servers
        assert asyncio.run(_read(servers, "kept")) == [b"one"]


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path, jars_cache: Path) -> None:
    with Cluster(folder=tmp_path, cache=jars_cache) as cluster:
        servers = cluster.bootstrap_servers
        asyncio.run(_create_topic(servers, "kept"))
        assert asyncio.run(_acknowledged(servers, "kept", b"one"))
        cluster.child(1).kill()
        assert cluster.running == []
        restart(cluster, 1)
        assert asyncio.run(_read(servers, "kept")) == [b"one"]


def test_three_brokers_refuse_what_two_of_them_cannot_hold(kafka_three: Cluster) -> None:
    servers = kafka_three.bootstrap_servers
    asyncio.run(_create_topic(servers, "kept"))
    assert asyncio.run(_acknowledged(servers, "kept", b"with three"))
    stop_broker(kafka_three, 3)
    assert asyncio.run(_acknowledged(servers, "kept", b"with two"))
    kafka_three.child(2).kill()
    assert not asyncio.run(_acknowledged(servers, "kept", b"with one"))

    restart(kafka_three, 2)
    assert _eventually(lambda: asyncio.run(_acknowledged(servers, "kept", b"with two again")))
    restart(kafka_three, 3)
    wait_in_sync(kafka_three)
    kept = asyncio.run(_read(servers, "kept"))
    assert [value for value in kept if value != b"with one"] == [
        b"with three",
        b"with two",
        b"with two again",
    ]


def test_a_paused_broker_is_replaced_and_comes_back(kafka_three: Cluster) -> None:
    servers = kafka_three.bootstrap_servers
    asyncio.run(_create_topic(servers, "paused"))
    with frozen(kafka_three, 1):
        assert _eventually(lambda: asyncio.run(_acknowledged(servers, "paused", b"one")))
    wait_in_sync(kafka_three)
    assert b"one" in asyncio.run(_read(servers, "paused"))


def test_nothing_is_left_running_after_stop(tmp_path: Path, jars_cache: Path) -> None:
    cluster = Cluster(folder=tmp_path, cache=jars_cache)
    cluster.start()
    pid = cluster.child(1).pid
    assert _runs(pid)
    cluster.stop()
    assert not _runs(pid)


def test_a_port_in_use_is_named_before_anything_starts(tmp_path: Path, jars_cache: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SetupError, match=rf"Port {port} .* is in use"):
            Cluster(folder=tmp_path, cache=jars_cache, ports=[port]).start()
    assert not (tmp_path / "broker-1" / "broker.log").exists()


def test_a_failed_start_says_why_and_leaves_nothing(tmp_path: Path, jars_cache: Path) -> None:
    with Cluster(folder=tmp_path, cache=jars_cache):
        pass
    # Data of another cluster, as after somebody has merged folders by hand.
    meta = tmp_path / "broker-1" / "data" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=7"))
    cluster = Cluster(folder=tmp_path, cache=jars_cache)
    with pytest.raises(SetupError, match=r"Kafka broker 1 stopped during its start: .*node"):
        cluster.start()
    assert cluster.running == []
    assert _processes_naming(tmp_path) == {}


def test_one_owner_per_data_folder(tmp_path: Path, jars_cache: Path) -> None:
    with (
        Cluster(folder=tmp_path, cache=jars_cache),
        pytest.raises(SetupError, match=rf"in use by another Kafka cluster .*{os.getpid()}"),
    ):
        Cluster(folder=tmp_path, cache=jars_cache).start()


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux signals a child whose parent was killed"
)
def test_a_killed_parent_takes_its_broker_along(tmp_path: Path, jars_cache: Path) -> None:
    # Started from a thread that ends at once: the kernel watches the thread that starts a child.
    code = (
        "import sys, threading; from pathlib import Path\n"
        "from deploy.local.cluster import Cluster\n"
        "cluster = Cluster(folder=Path(sys.argv[1]), cache=Path(sys.argv[2]))\n"
        "thread = threading.Thread(target=cluster.start); thread.start(); thread.join()\n"
        "print(cluster.child(1).pid, flush=True); sys.stdin.read()\n"
    )
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path, jars_cache],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        try:
            assert parent.stdout is not None
            broker_pid = int(parent.stdout.readline())
            assert _runs(broker_pid)
        finally:
            parent.send_signal(signal.SIGKILL)
    assert _eventually(lambda: not _runs(broker_pid))


def test_ctrl_c_during_the_start_leaves_nothing(tmp_path: Path, jars_cache: Path) -> None:
    code = (
        # Tests' background processes ignore Ctrl-C.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import sys; from pathlib import Path\n"
        "from deploy.local.cluster import Cluster\n"
        "Cluster(folder=Path(sys.argv[1]), cache=Path(sys.argv[2])).start()\n"
        "print('started', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path, jars_cache],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        try:
            assert _eventually(lambda: bool(_brokers_of(tmp_path)))
            # A frozen broker is never ready, so the start lasts as long as the test needs.
            os.kill(_brokers_of(tmp_path)[0], signal.SIGSTOP)
            parent.send_signal(signal.SIGINT)
            assert parent.wait(timeout=60) != 0
            assert parent.stdout is not None
            assert parent.stdout.read() == ""
        finally:
            parent.kill()
    assert _processes_naming(tmp_path) == {}


def test_a_child_takes_along_what_it_started_itself(tmp_path: Path) -> None:
    # In a process group of its own, as Spark's Python workers are.
    code = (
        "import subprocess, sys, time\n"
        "inner = subprocess.Popen(['sleep', '600'], process_group=0)\n"
        "print(inner.pid, flush=True); time.sleep(600)\n"
    )
    child = Child("outer", [sys.executable, "-c", code], log=tmp_path / "outer.log")
    try:
        assert _eventually(lambda: bool(child.tail_log(1)))
        inner_pid = int(child.tail_log(1)[0])
        assert _runs(inner_pid)
        assert child.stop(timeout_s=10)
    finally:
        child.kill()
    assert not child.alive
    assert not _runs(inner_pid)


def test_a_child_that_others_go_before_is_nice_by_itself_and_as_a_session(tmp_path: Path) -> None:
    code = "import os, time; print(os.nice(0), flush=True); time.sleep(600)"
    argv, log = [sys.executable, "-c", code], tmp_path / "nice.log"
    child = Child("nice", argv, log=log, niceness=5)
    try:
        assert _eventually(lambda: bool(child.tail_log(1)))
        assert child.tail_log(1) == [str(5 + os.nice(0))]
        group = Path(f"/proc/{child.pid}/autogroup")
        # Where Linux shares out processors by session.
        assert not group.exists() or group.read_text().endswith("nice 5\n")
    finally:
        child.kill()


async def _create_topic(servers: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        # min.insync.replicas is the brokers' own default, which these tests are about.
        answer = await admin.create_topics([NewTopic(topic, 1, len(servers.split(",")))])
        assert [row[1] for row in answer.topic_errors] == [0], answer
    finally:
        await admin.close()


async def _acknowledged(servers: str, topic: str, value: bytes) -> bool:
    """Return whether Kafka acknowledged the record with acks=all."""
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, acks="all", request_timeout_ms=_SEND_TIMEOUT_MS
    )
    try:
        await producer.start()
        await asyncio.wait_for(
            producer.send_and_wait(topic, value), timeout=2 * _SEND_TIMEOUT_MS / 1000
        )
    except (KafkaError, TimeoutError):
        return False
    else:
        return True
    finally:
        # A producer that still holds a record would never stop trying to send it.
        producer._sender.sender_task.cancel() if producer._sender.sender_task else None
        await producer.client.close()
        producer._closed = True


async def _read(servers: str, topic: str) -> list[bytes]:
    return [record.value for record in await read_all(servers, topic)]


def _eventually(claim: Callable[[], bool], timeout_s: float = 30.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if claim():
            return True
        time.sleep(0.05)
    return False


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _processes_naming(folder: Path) -> dict[int, str]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in command:
            found[int(path.parent.name)] = command
    return found


def _brokers_of(folder: Path) -> list[int]:
    """Return the brokers proper: not the Python that becomes one, nor Kafka's format step."""
    return [
        pid
        for pid, command in _processes_naming(folder).items()
        if command.split(" ")[0].endswith("java") and " kafka.Kafka " in command
    ]
