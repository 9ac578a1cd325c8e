"""The files in which workers share what they know: exact under contention and under kill -9."""

import multiprocessing
import os
import signal
import time
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from delivery.flow_store import FlowStore
from shared.config.destination import Destination
from shared.flow.flow import SendLimits
from shared.flow.flow_record import open_flow_record
from shared.retry.schedule import RetrySchedule
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.suite.samples import NOW_MS

SHOP = Destination("orders", "shop", "https://shop.example/in")
LIMITS = SendLimits(SHOP, RetrySchedule())
# Workers are forked from a process without threads. Tests have threads, so they spawn instead.
FRESH = multiprocessing.get_context("spawn")


def count_up(folder: Path, times: int) -> None:
    store = FlowStore(folder)
    for _ in range(times):
        with store.lock(LIMITS, now_ms=NOW_MS) as locked:
            locked.park({"over_rate": 1})


def hold_on(folder: Path, told: Path) -> None:
    with FlowStore(folder).lock(LIMITS, now_ms=NOW_MS):
        told.touch()
        time.sleep(600)


def holder(folder: Path) -> SpawnProcess:
    """Start a worker that holds the file until it ends."""
    told = folder / "told"
    worker = FRESH.Process(target=hold_on, args=(folder / "flows", told))
    worker.start()
    wait_until(told.exists, what="the worker holds the file", timeout_s=60)
    return worker


def test_no_worker_overwrites_what_another_has_learned(tmp_path: Path) -> None:
    workers = [FRESH.Process(target=count_up, args=(tmp_path, 300)) for _ in range(3)]
    for worker in workers:
        worker.start()
    # A reader without the lock never sees half a record: a page is written as a whole.
    path = tmp_path / "orders.shop.json"
    while any(worker.is_alive() for worker in workers):
        raw = path.read_bytes() if path.exists() else b""
        assert not raw or open_flow_record(raw) is not None
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    with FlowStore(tmp_path).lock(LIMITS, now_ms=NOW_MS) as locked:
        assert locked.flow.parks == {"over_rate": 900}


def test_a_worker_that_stands_still_holds_up_no_other_for_long(tmp_path: Path) -> None:
    worker, store = holder(tmp_path), FlowStore(tmp_path / "flows")
    begun_s = time.monotonic()
    for _ in range(100):
        with store.lock(LIMITS, now_ms=NOW_MS) as locked:
            locked.park({"over_rate": 1})
    # The store waits for the lock once, not each time, and keeps the counts of the meantime.
    assert time.monotonic() - begun_s < 5
    assert locked.flow.parks == {"over_rate": 100}
    assert worker.is_alive()
    worker.kill()
    worker.join(60)


def test_a_worker_that_is_killed_lets_go(tmp_path: Path) -> None:
    worker = holder(tmp_path)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    count_up(tmp_path / "flows", 1)
    worker.join(60)


def test_what_is_learned_is_there_for_the_next_process(tmp_path: Path) -> None:
    count_up(tmp_path, 2)
    store = FlowStore(tmp_path)
    with store.lock(LIMITS, now_ms=NOW_MS + 5) as locked:
        assert locked.flow.parks == {"over_rate": 2}
        assert locked.to_publish() is not None
        # The change is published once.
        assert locked.to_publish() is None
    with store.lock(LIMITS, now_ms=NOW_MS + 6) as locked:
        assert locked.to_publish() is None


def test_workers_that_begin_at_the_same_time_make_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_file = os.open

    def others_are_quicker(path: Path, *how: int) -> int:
        try:
            return open_file(path, *how)
        except FileNotFoundError:
            path.parent.mkdir(exist_ok=True)
            raise

    monkeypatch.setattr(os, "open", others_are_quicker)
    with FlowStore(tmp_path / "flows").lock(LIMITS, now_ms=NOW_MS) as locked:
        locked.park({"over_rate": 1})
    assert (tmp_path / "flows" / "orders.shop.json").stat().st_size > 0
