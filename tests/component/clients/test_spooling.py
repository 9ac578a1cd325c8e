"""With a spool an event stays on disk until a real gateway has it, whatever delays that."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from hifi_client import Fate, FullError, Sender, Sent
from hifi_client.sending.posting import Poster
from hifi_client.spooling.segment import Segment
from hifi_client.spooling.spool import Spool
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.client_gateways import KEY, WAIT_S, stored
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway


def test_a_spool_has_events_on_disk_until_the_gateway_has_them(
    publisher: FakePublisher, gateway: RunningGateway, tmp_path: Path
) -> None:
    with Sender("http://127.0.0.1:1", "orders", spool=tmp_path) as hifi:
        sent = [hifi.send({"id": f"{n:04}"}) for n in range(1_000)]
        assert {one.wait_safe(WAIT_S).fate for one in sent} == {Fate.SPOOLED}
        assert {one.outcome for one in sent} == {None}
    assert {one.wait(0).fate for one in sent} == {Fate.SPOOLED}
    told: list[str] = []
    with Sender(
        gateway.url, "orders", spool=tmp_path, on_outcome=lambda one: told.append(one.id)
    ) as hifi:
        assert hifi.flush(WAIT_S)
    assert stored(publisher) == sorted(told) == [one.id for one in sent]
    assert not list(tmp_path.glob("*.spool"))


def test_what_is_spooled_waits_for_a_key_and_is_not_refused_for_want_of_one(
    publisher: FakePublisher, locked: RunningGateway, tmp_path: Path
) -> None:
    with Sender(locked.url, "orders", key="wrong", spool=tmp_path) as hifi:
        assert hifi.send({"id": "a"}).wait_safe(WAIT_S).fate is Fate.SPOOLED
        wait_until(lambda: "401" in hifi.problem, what="the problem is reported")
    with Sender(locked.url, "orders", key=KEY, spool=tmp_path) as hifi:
        assert hifi.flush(WAIT_S)
    assert stored(publisher) == ["a"]


def test_what_hifi_refuses_of_a_spool_is_kept_for_a_person(
    gateway: RunningGateway, tmp_path: Path
) -> None:
    with Sender(gateway.url, "orders", spool=tmp_path) as hifi:
        outcome = hifi.send({"id": "b", "price": "x"}).wait(WAIT_S)
    assert outcome.fate is Fate.REJECTED
    kept = (tmp_path / "refused.ndjson").read_text()
    assert '"code":"schema_violation"' in kept
    assert '"event":{"id":"b","price":"x"}' in kept


def test_what_is_refused_while_the_disk_is_full_holds_up_nothing_once_it_is_not(
    publisher: FakePublisher,
    gateway: RunningGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full, asked = threading.Event(), threading.Event()
    full.set()
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        if (
            full.is_set()
            and Path(f"/proc/self/fd/{descriptor}").readlink().name == "refused.ndjson"
        ):
            asked.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with Sender(gateway.url, "orders", spool=tmp_path, linger_s=0) as hifi:
        refused = hifi.send({"id": "b", "price": "x"})
        assert asked.wait(WAIT_S)
        wait_until(lambda: "No space left" in hifi.problem, what="the problem is reported")
        assert (tmp_path / "refused.ndjson").read_bytes() == b""
        full.clear()
        assert refused.wait(WAIT_S).fate is Fate.REJECTED
        assert hifi.send({"id": "c"}).wait(WAIT_S).fate is Fate.ACCEPTED
        assert hifi.flush(WAIT_S)
    assert (tmp_path / "refused.ndjson").read_text().count("\n") == 1
    assert stored(publisher) == ["c"]
    assert not list(tmp_path.glob("*.spool"))


def test_a_batch_that_a_bug_kept_from_the_gateway_holds_up_no_other_and_is_tried_again(
    publisher: FakePublisher,
    gateway: RunningGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    post, bugs = Poster.post, [RuntimeError("a bug")]

    def failing_once(*given: Any, **more: Any) -> Any:
        if bugs:
            raise bugs.pop()
        return post(*given, **more)

    monkeypatch.setattr(Poster, "post", failing_once)
    with Sender(gateway.url, "orders", spool=tmp_path, linger_s=0) as hifi:
        for name in "ab":
            assert hifi.send({"id": name}).wait(WAIT_S).fate is Fate.ACCEPTED
        assert hifi.flush(WAIT_S)
    assert stored(publisher) == ["a", "b"]
    assert not list(tmp_path.glob("*.spool"))


def test_a_disk_that_refuses_the_position_and_what_is_damaged_ends_no_thread(
    publisher: FakePublisher,
    gateway: RunningGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spool = Spool(tmp_path, stream="orders", bytes_max=10_000_000)
    spool.append([b'{"id":"damaged"}', b'{"id":"after"}'], lambda _: None)
    spool.close()
    (segment,) = tmp_path.glob("*.spool")
    segment.write_bytes(segment.read_bytes().replace(b"damaged", b"d?maged"))
    full, asked = threading.Event(), threading.Event()
    keep_aside, write = Segment.keep_aside, os.pwrite
    full.set()

    def refused(*given: Any) -> Any:
        asked.set()
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        return keep_aside(*given)

    def no_position(descriptor: int, data: bytes, offset: int) -> int:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == "position":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data, offset)

    monkeypatch.setattr(Segment, "keep_aside", refused)
    monkeypatch.setattr(os, "pwrite", no_position)
    with Sender(gateway.url, "orders", spool=tmp_path, linger_s=0) as hifi:
        assert asked.wait(WAIT_S)
        wait_until(lambda: "No space left" in hifi.problem, what="the problem is reported")
        full.clear()
        assert hifi.send({"id": "new"}).wait(WAIT_S).fate is Fate.ACCEPTED
        assert hifi.flush(WAIT_S)
    assert stored(publisher) == ["after", "new"]


def test_a_full_spool_stops_the_sender_until_the_gateway_is_back(
    publisher: FakePublisher, gateway: RunningGateway, tmp_path: Path
) -> None:
    publisher.hold()
    options = {"spool": tmp_path, "spool_bytes_max": 20_000, "memory_bytes_max": 10_000}
    with Sender(gateway.url, "orders", linger_s=0, **options) as hifi:
        sent: list[Sent] = []

        def is_full() -> bool:
            """Say whether the spool is full; on a slow disk the memory is full before the spool."""
            try:
                while True:
                    sent.append(hifi.send_within(0.2, {"text": "x" * 200}))
            except FullError:
                return "events wait in memory" in hifi.problem

        wait_until(is_full, what="the spool reports that it is full")
        assert sum(each.stat().st_size for each in tmp_path.iterdir()) < 22_000
        publisher.release()
        assert {one.wait(WAIT_S).fate for one in sent} == {Fate.ACCEPTED}
    assert stored(publisher) == sorted(one.id for one in sent)


def test_a_child_of_a_fork_does_not_keep_the_spool(gateway: RunningGateway, tmp_path: Path) -> None:
    hifi = Sender(gateway.url, "orders", spool=tmp_path)
    go_on, wait = os.pipe()
    if (child := os.fork()) == 0:
        os.read(go_on, 1)
        os._exit(0)
    hifi.close()
    try:
        Sender(gateway.url, "orders", spool=tmp_path).close()
    finally:
        os.write(wait, b"x")
        os.waitpid(child, 0)
        os.close(go_on)
        os.close(wait)
