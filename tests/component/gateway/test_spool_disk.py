"""A disk that fails: nothing is sent of what its sender was told is not stored."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.publish.report import Fate
from gateway.publish.spool import Spool
from gateway.publish.spool_file import InDoubtError, SpoolFile, frame
from tests.component.gateway.test_spool import ASYNC, TOPIC, event, post
from tests.support.fake_publisher import FakePublisher
from tests.support.gateway_fixtures import RunningGateway, config_with, running_gateway


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([TOPIC])


@pytest.fixture
def gateway(publisher: FakePublisher, tmp_path: Path) -> Iterator[RunningGateway]:
    spool = Spool(tmp_path, bytes_max=2_000, publisher=publisher)
    spool.start()
    with running_gateway(publisher, config_with("orders"), spool=spool) as running:
        yield running


def no_room(*_: object) -> int:
    raise OSError(28, "No space left on device")


def test_nothing_of_what_a_full_disk_takes_in_part_is_sent(tmp_path: Path) -> None:
    """Requests are written together: the disk has the first as a whole when it is full."""
    whole, write = len(frame(TOPIC, [event("first")])), os.write

    def takes_one(descriptor: int, data: memoryview) -> int:
        return write(descriptor, data[:whole]) if len(data) > whole else no_room()

    file = SpoolFile.made(tmp_path)
    file.append([frame(TOPIC, [event("kept")])], 1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "write", takes_one)
        with pytest.raises(OSError, match="No space") as refused:
            file.append([frame(TOPIC, [event(name)]) for name in ("first", "other")], 2)
    assert not isinstance(refused.value, InDoubtError)
    assert (file.event_count, file.byte_count) == (1, len(frame(TOPIC, [event("kept")])))
    # What comes next stands right behind what is there.
    file.append([frame(TOPIC, [event("next")])], 1)
    sent = [each.id for request in file.requests() for each in request.events]
    assert sent == ["kept", "next"]
    file.remove()
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_503_and_one_that_may_have_it_is_504(
    gateway: RunningGateway, publisher: FakePublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.fate = Fate.NOT_STORED
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", no_room)
        assert post(gateway, ASYNC).status_code == 503
    fsync = os.fsync

    def of_folders(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            no_room()
        fsync(descriptor)

    with monkeypatch.context() as patched:
        # And so nobody knows whether it is cut off again.
        patched.setattr(os, "fsync", of_folders)
        doubtful = post(gateway, ASYNC)
    assert (doubtful.status_code, doubtful.json()["code"]) == (504, "outcome_unknown")
    assert post(gateway, ASYNC).status_code == 202
