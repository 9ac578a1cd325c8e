"""Our clients log in at a fake Amazon MSK, and again before each login ends."""

import asyncio
import struct
from collections.abc import Iterator
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread

import pytest
from aiokafka.conn import create_conn
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest

from shared.runtime.kafka.clients import check_access
from shared.runtime.kafka.connection import _own, access_to, learn_access
from shared.runtime.kafka.logins import broker_connection
from shared.runtime.kafka.logins.msk import tokens_for
from shared.runtime.kafka.settings import KafkaAccess
from shared.runtime.setup_error import KafkaRefusedError
from tests.support.kafka.msk_door import MskDoor
from tests.support.servers.authority import Authority

KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
LOGIN_S = 0.3
# Handshake 0 to 1, authentication 0 to 1, versions 0, metadata 0 to 1.
VERSIONS = [(17, 0, 1), (36, 0, 1), (18, 0, 0), (3, 0, 1)]
NO_BROKERS = struct.pack(">iii", 0, -1, 0)


class EmptyBroker(StreamRequestHandler):
    """Says what it can do, and that it has no topics."""

    def handle(self) -> None:
        while size := self.rfile.read(4):
            request = self.rfile.read(*struct.unpack(">i", size))
            kind, _, number = struct.unpack_from(">hhi", request)
            answer = struct.pack(">i", number) + (_versions() if kind == 18 else NO_BROKERS)
            self.wfile.write(struct.pack(">i", len(answer)) + answer)


def _versions() -> bytes:
    rows = b"".join(struct.pack(">hhh", *each) for each in VERSIONS)
    return struct.pack(">hi", 0, len(VERSIONS)) + rows


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MskDoor]:
    """Run a fake MSK for one AWS identity, which is this process's own."""
    monkeypatch.setattr("shared.runtime.kafka.connection._own", dict(_own))
    for name, value in {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "eu-west-1",
    }.items():
        monkeypatch.setenv(name, value)
    tokens_for.cache_clear()
    authority = Authority(tmp_path)
    certificate, key = authority.sign("broker")
    pem = tmp_path / "both.pem"
    pem.write_bytes(key.read_bytes() + certificate.read_bytes())
    with ThreadingTCPServer(("127.0.0.1", 0), EmptyBroker) as broker:
        broker.daemon_threads = True
        thread = Thread(target=broker.serve_forever, daemon=True)
        thread.start()
        new = MskDoor(
            0,
            broker_port=broker.server_address[1],
            pem=pem,
            identity=(KEY, SECRET),
            login_s=LOGIN_S,
        )
        with new.open() as it:
            access = KafkaAccess(
                protocol="SASL_SSL", ca_file=authority.file, mechanism="AWS_MSK_IAM"
            )
            learn_access([address(it)], access)
            yield it
        broker.shutdown()
        thread.join()
    tokens_for.cache_clear()


def address(door: MskDoor) -> str:
    return f"127.0.0.1:{door.server_address[1]}"


async def used_for(door: MskDoor, duration_s: float) -> int:
    """Send requests over one connection for some seconds; return how many were answered."""
    where = address(door)
    host, port = door.server_address[:2]
    connection = await create_conn(host, port, **access_to(where).for_client(where))
    answered = 0
    until_s = asyncio.get_running_loop().time() + duration_s
    try:
        while asyncio.get_running_loop().time() < until_s:
            await connection.send(MetadataRequest([]))
            answered += 1
            await asyncio.sleep(0.01)
    finally:
        await connection.close()
    return answered


def test_a_connection_outlives_its_logins(door: MskDoor) -> None:
    assert asyncio.run(used_for(door, 5 * LOGIN_S)) > 20
    assert door.logins["OAUTHBEARER"] >= 5


def test_without_renewal_the_connection_ends(
    door: MskDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_connection._BrokerConnection, "_renew", lambda _: None)
    with pytest.raises(KafkaConnectionError):
        asyncio.run(used_for(door, 5 * LOGIN_S))
    assert door.logins["OAUTHBEARER"] == 1


def test_another_identity_is_refused_in_one_sentence(
    door: MskDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of somebody else")
    with pytest.raises(KafkaRefusedError, match="must allow kafka-cluster:Connect on this"):
        asyncio.run(check_access(address(door)))
    assert door.logins.total() == 0
