"""A worker's file descriptors are bounded; when none is left, no destination is blamed for it."""

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from delivery import flow_store
from delivery.flow_store import FILES_MAX, FlowStore
from delivery.http import idle
from delivery.http.sender import BUILDERS_MAX, Sender
from shared.flow.flow import SendLimits
from shared.retry.attempt import Attempt, Failure, NoResponse, Response, classify
from shared.retry.schedule import RetrySchedule
from tests.support.delivery.deliver_runs import events, new_folder, plan_for, run, sample
from tests.support.delivery.egress_sends import BOX, a_destination
from tests.support.servers.scripted_destination import (
    Reply,
    Request,
    ScriptedDestination,
    scripted_destination,
)
from tests.support.suite.samples import NOW_MS

DESTINATIONS = 200


def open_files(folder: Path) -> int:
    """Return how many files of a folder this process has open."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            links.append(descriptor.readlink())
        except FileNotFoundError:
            continue
    return sum(link.parent == folder for link in links)


def open_connections(to: ScriptedDestination) -> int:
    """Return how many connections to a destination our side has not closed."""
    port = int(to.url.rpartition(":")[2].partition("/")[0])
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    # 01: established, 08: only the other side has closed it.
    return sum(int(line[2][-4:], 16) == port and line[3] in {"01", "08"} for line in lines)


def test_hundreds_of_destinations_leave_no_more_descriptors_than_the_bounds_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flow_store, "FILES_MAX", 60)
    monkeypatch.setattr(idle, "IDLE_MAX", 120)
    folder = new_folder()
    with scripted_destination() as destination:
        for number in range(DESTINATIONS):
            to = replace(sample(destination), name=f"to{number}")
            run(events(1), plan_for(to, flow_folder=folder))
        assert len(destination.requests) >= DESTINATIONS
        assert open_files(folder) == 60
        assert open_connections(destination) <= 120


def test_what_waited_too_long_is_closed_at_the_end_of_any_later_task() -> None:
    with scripted_destination() as quiet, scripted_destination() as busy:
        run(events(1), plan_for(sample(quiet)))
        assert open_connections(quiet) == 1
        other = replace(sample(busy), name="busy")
        before_s, idle.KEEP_ALIVE_S = idle.KEEP_ALIVE_S, 0.0
        try:
            run(events(1), plan_for(other))
        finally:
            idle.KEEP_ALIVE_S = before_s
        assert open_connections(quiet) == 0


def test_who_has_most_connections_gives_way_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant with many connections loses its own, not those of others."""
    monkeypatch.setattr(idle, "IDLE_MAX", 4)
    monkeypatch.setattr(idle, "KEEP_ALIVE_S", 600.0)

    async def send(quiet: ScriptedDestination, busy: ScriptedDestination) -> list[int]:
        sender = Sender(allows_private=True, box=BOX)
        to = a_destination(quiet.url)
        assert await sender.post(to, b"[1]", {}) == Response(200)
        other = replace(to, name="busy", url=busy.url)
        await asyncio.gather(*(sender.post(other, b"[1]", {}) for _ in range(6)))
        await sender.end_task()
        left = [open_connections(each) for each in (quiet, busy)]
        await sender.close()
        return left

    def wait_a_little(_: int, __: Request) -> Reply:
        return Reply(delay_s=0.1)

    with scripted_destination() as quiet, scripted_destination(wait_a_little) as busy:
        assert asyncio.run(send(quiet, busy)) == [1, 3]


def test_whether_others_may_have_sent_the_same_is_asked_once_it_is_connected() -> None:
    """A process may freeze while it connects, for longer than its lease lasts."""

    async def send(to: ScriptedDestination) -> None:
        sender, sample = Sender(allows_private=True, box=BOX), a_destination(to.url)
        await sender.post(sample, b"[1]", {}, is_late=lambda: open_connections(to) > 0)
        await sender.post(sample, b"[1]", {})
        await sender.close()

    with scripted_destination() as destination:
        asyncio.run(send(destination))
    labels = [request.headers.get("hifi-maybe-duplicate") for request in destination.requests]
    assert labels == ["1", None]


def test_a_file_that_was_closed_is_read_again(tmp_path: Path) -> None:
    store = FlowStore(tmp_path)
    to = a_destination("http://shop.example/")
    all_limits = [
        SendLimits(replace(to, name=f"to{number}"), RetrySchedule())
        for number in range(FILES_MAX + 1)
    ]
    for limits in [*all_limits, all_limits[0]]:
        with store.lock(limits, now_ms=NOW_MS) as locked:
            locked.park({"over_rate": 1})
    with store.lock(all_limits[0], now_ms=NOW_MS) as locked:
        assert locked.flow.parks == {"over_rate": 2}
    assert open_files(tmp_path) == FILES_MAX
    # Cached state counts only while the file has the same content.
    FlowStore.path(store, all_limits[1].to).write_bytes(b"")
    with store.lock(all_limits[1], now_ms=NOW_MS) as locked:
        assert locked.flow.parks == {}


def test_builders_of_destinations_that_are_not_sent_to_are_forgotten() -> None:
    async def send() -> None:
        sender = Sender(allows_private=True, box=BOX)
        to = a_destination("http://127.0.0.1:9/")
        for number in range(BUILDERS_MAX + 5):
            await sender.post(replace(to, name=f"to{number}"), b"[1]", {})
        assert len(sender._builders) == BUILDERS_MAX
        await sender.close()

    asyncio.run(send())


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_no_descriptor_left_is_our_trouble_and_parks() -> None:
    async def send(url: str) -> list[Attempt]:
        sender = Sender(allows_private=True, box=BOX)
        to = a_destination(url)
        with no_descriptor_left():
            attempts = [await sender.post(to, b"[1]", {})]
            named = replace(to, name="named", url=url.replace("127.0.0.1", "localhost"))
            attempts.append(await sender.post(named, b"[1]", {}))
        attempts.append(await sender.post(to, b"[1]", {}))
        await sender.close()
        return attempts

    with scripted_destination() as destination:
        no_socket, no_look_up, well = asyncio.run(send(destination.url))
    assert isinstance(no_socket, NoResponse)
    assert no_socket.failure is Failure.INTERNAL
    assert "Too many open files" in no_socket.detail
    assert isinstance(no_look_up, NoResponse)
    assert no_look_up.failure in {Failure.RESOLVER_DOWN, Failure.INTERNAL}
    assert not any(classify(each).is_breaker_failure for each in (no_socket, no_look_up))
    assert well == Response(200)


def test_a_flow_file_takes_the_place_of_another_when_no_descriptor_is_left(tmp_path: Path) -> None:
    store = FlowStore(tmp_path)
    to = a_destination("http://shop.example/")
    with store.lock(SendLimits(to, RetrySchedule()), now_ms=NOW_MS):
        pass
    other = SendLimits(replace(to, name="other"), RetrySchedule())
    # The lowest free descriptor is the one above the store's.
    with no_descriptor_left(), store.lock(other, now_ms=NOW_MS) as locked:
        assert locked.flow.parks == {}
    assert open_files(tmp_path) == 1
