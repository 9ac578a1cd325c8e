"""Lanes change while they run: paused, changed, moved to real time and back, without a restart."""

import asyncio
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import pytest
from aiokafka import AIOKafkaProducer

from shared.config.destination import Destination
from shared.event.topics import stream_topic
from tests.support.deploy.stack_fixtures import PATIENCE_S, RunningHifi, fetch, wait_until
from tests.support.kafka.config_records import write_config
from tests.support.kafka.lane_marks import follows, passed
from tests.support.servers.scripted_destination import Reply, scripted_destination

pytestmark = pytest.mark.integration

# Key, value, headers.
Record: TypeAlias = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def ids(prefix: str, count: int) -> list[dict[str, str]]:
    return [{"id": f"{prefix}-{number}"} for number in range(count)]


def change(hifi: RunningHifi, destination: Destination) -> None:
    asyncio.run(write_config(hifi.kafka, [destination]))


def lane_is(port: int, destination: Destination, *, up: bool) -> bool:
    line = f'hifi_delivery_lane_up{{destination="{destination.id}"}}'
    says = fetch(f"http://127.0.0.1:{port}/metrics")
    return f"{line} 1.0" in says if up else bool(says) and line not in says


def test_a_paused_lane_keeps_its_position_and_a_changed_one_sends_otherwise(
    hifi: RunningHifi,
) -> None:
    port = hifi.stack.settings.delivery_metrics_port
    with scripted_destination() as destination:
        to = Destination(stream="paused", name="to", url=destination.url)
        hifi.add(to)
        assert hifi.post("paused", ids("before", 10)).status_code == 200
        wait_until(lambda: len(destination.accepted_ids) == 10, what="10 arrived")
        hifi.wait_for_balance(to.id, lambda b: b.delivered == 10, what="10 delivered")
        change(hifi, replace(to, is_paused=True))
        wait_until(lambda: lane_is(port, to, up=False), what="the lane is down")
        assert hifi.post("paused", ids("while", 10)).status_code == 200
        changed_s = time.monotonic()
        change(hifi, replace(to, batch_count_max=1))
        wait_until(lambda: len(destination.accepted_ids) == 20, what="20 arrived")
        took_s = time.monotonic() - changed_s
        while_paused = [r for r in destination.accepted if r.events[0]["id"].startswith("while")]
        assert max(destination.accepted_ids.values()) == 1
        assert all(request.received_s > changed_s for request in while_paused)
        assert [len(request.events) for request in while_paused] == [1] * 10
        # The promise is 5 s; a test machine's cores have other work, too.
        assert took_s < PATIENCE_S / 3


def micro_batches(port: int, destination: Destination) -> int:
    name = f'hifi_delivery_micro_batch_seconds_count{{destination="{destination.id}"}} '
    pages: list[str] = []

    def is_told() -> bool:
        pages.append(fetch(f"http://127.0.0.1:{port}/metrics"))
        return bool(pages[-1])

    wait_until(is_told, what="a busy process has published its figures")
    lines = pages[-1].splitlines()
    return round(sum(float(line.removeprefix(name)) for line in lines if line.startswith(name)))


def test_a_lane_in_trouble_rests_and_wakes_up_for_a_pause_and_for_its_destination(
    hifi: RunningHifi,
) -> None:
    port = hifi.stack.settings.delivery_metrics_port
    is_well = False
    with scripted_destination(lambda _, __: Reply(status=200 if is_well else 503)) as destination:
        to = Destination(stream="resting", name="to", url=destination.url)
        hifi.add(to)
        sent = 0

        def made_in_3_s() -> int:
            nonlocal sent
            before, until_s = micro_batches(port, to), time.monotonic() + 3.0
            while time.monotonic() < until_s:
                assert hifi.post("resting", ids(f"{sent}", 1)).status_code == 200
                sent += 1
                time.sleep(0.1)
            return micro_batches(port, to) - before

        # For the length of a time box, a busy lane looks like a resting one, so measure for longer.
        wait_until(lambda: made_in_3_s() >= 1, what="the destination is tried")
        wait_until(
            lambda: made_in_3_s() + made_in_3_s() + made_in_3_s() <= 3, what="the lane rests"
        )
        paused_s = time.monotonic()
        change(hifi, replace(to, is_paused=True))
        wait_until(lambda: lane_is(port, to, up=False), what="the lane is down")
        assert time.monotonic() - paused_s < PATIENCE_S / 18
        change(hifi, to)
        hifi.wait_for_lane(to.id)
        assert made_in_3_s() <= 2
        is_well = True
        wait_until(lambda: made_in_3_s() >= 4, what="the lane no longer rests")
        # Events that failed often wait for longer than a test takes.
        hifi.wait_for_balance(
            to.id, lambda b: b.delivered + b.waiting == sent, what="all delivered or waiting"
        )
        assert max(destination.accepted_ids.values()) == 1
    assert hifi.balance(to.id).unaccounted == 0


def test_a_lane_moves_to_real_time_and_back_and_sends_nothing_twice(hifi: RunningHifi) -> None:
    """The lane stays one strand throughout, planned in different ways."""
    with scripted_destination() as destination:
        to = Destination(stream="moving", name="to", url=destination.url)
        hifi.add(to)
        assert hifi.post("moving", ids("first", 20)).status_code == 200
        hifi.wait_for_balance(to.id, lambda b: b.delivered == 20, what="20 delivered")
        change(hifi, replace(to, latency="realtime"))

        wait_until(lambda: follows(hifi.kafka, to.id), what="the lane follows its log")
        assert hifi.post("moving", ids("second", 20)).status_code == 200
        wait_until(lambda: len(destination.accepted_ids) == 40, what="40 arrived")
        hifi.wait_for_balance(to.id, lambda b: b.delivered == 40, what="40 delivered")
        change(hifi, to)
        wait_until(
            lambda: not follows(hifi.kafka, to.id), what="the lane no longer follows its log"
        )
        assert hifi.post("moving", ids("third", 20)).status_code == 200
        hifi.wait_for_balance(to.id, lambda b: b.delivered == 60, what="60 delivered")
        expected = [event["id"] for name in ("first", "second", "third") for event in ids(name, 20)]
        assert destination.accepted_ids == Counter(expected)
        assert not [r for r in destination.accepted if "hifi-maybe-duplicate" in r.headers]
    wait_until(lambda: passed(hifi.kafka, to.id) == 60, what="the lane has passed all events")
    assert hifi.balance(to.id).unaccounted == 0


def test_what_others_wrote_to_the_stream_crosses_in_real_time_as_it_is(hifi: RunningHifi) -> None:
    """All that a record may hold arrives unchanged, and a lone record does not wait for others."""
    odd = b'{"id": "odd",\n "says": "=,- \xc3\xa9"}'
    timed: list[tuple[str, bytes | None]] = [("event-time-ms", b"2000"), ("event-id", b"six")]
    records: list[Record] = [
        (b"\x00 \n-", odd, [("event-id", b"a=b,c"), ("event-time-ms", b"1000"), ("", b"")]),
        (b"", b"2", [("event-id", b"two"), ("no-value", None)]),
        (b"k", None, []),
        (b"k", b"4", []),
        (b"k", b"5", []),
        # These have more headers than the gateway writes.
        (b"k", b"6", [("a", b"1"), ("b", None), ("c", b","), ("c", b""), *timed]),
    ]
    with scripted_destination() as destination:
        # This format sends the facts of the envelope, which shows that they arrived, too.
        to = Destination(stream="odd", name="to", url=destination.url, body_format="cloudevents")
        hifi.add(to)
        change(hifi, replace(to, latency="realtime"))

        wait_until(lambda: follows(hifi.kafka, to.id), what="the lane follows its log")

        def have_come(count: int) -> bool:
            return len(destination.accepted_ids) == count

        waits_s = []
        for number, record in enumerate(records, start=1):
            asyncio.run(write(hifi.kafka, record))
            begun_s = time.monotonic()
            wait_until(partial(have_come, number), what=f"{number} came")
            waits_s.append(time.monotonic() - begun_s)
        bodies = b"".join(request.body for request in destination.accepted)
        found = {one["id"]: one for request in destination.accepted for one in request.events}
    # An event that waits for the end of its task would wait for most of that time.
    assert min(waits_s) < 2.5, f"lone events waited {waits_s}"
    assert odd in bodies
    assert found["a=b,c"]["time"] == "1970-01-01T00:00:01.000Z"
    assert found["two"]["data"] == 2
    assert (found["six"]["data"], found["six"]["time"]) == (6, "1970-01-01T00:00:02.000Z")
    assert found[f"{stream_topic('odd')}:0:2"]["data"] is None


async def write(servers: str, *records: Record) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers, acks="all") as producer:
        for key, value, headers in records:
            await producer.send_and_wait(
                stream_topic("odd"), value, key=key, headers=headers, partition=0
            )
