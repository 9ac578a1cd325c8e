"""The retrier in all of Hifi: changes, faults and mistakes while events wait."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.control.stores.redrive import KafkaDeadLetters, Redriven
from shared.config.destination import Destination
from shared.event.record import RecordOut
from shared.event.topics import DEAD, retry_topic
from shared.retry.dead_letter import DeadLetterFilter
from shared.retry.schedule import RetrySchedule
from tests.support.deploy.stack_fixtures import PATIENCE_S, RunningHifi, wait_until
from tests.support.kafka.kafka_log import write_rows
from tests.support.servers.scripted_destination import Reply, Request, always, scripted_destination

pytestmark = pytest.mark.integration


def fail_first(_: int, request: Request) -> Reply:
    return Reply(503 if request.headers["hifi-attempt"] == "1" else 200)


def lane_starts(hifi: RunningHifi) -> int:
    log = hifi.stack.settings.folder / "logs" / "retrier.log"
    return log.read_text().count("lane.started")


def test_a_mended_address_rescues_what_waits_and_restarts_nothing(hifi: RunningHifi) -> None:
    starts = lane_starts(hifi)
    with scripted_destination(fail_first) as right:
        nobody = "http://127.0.0.1:9/"
        to = Destination(stream="mended", name="to", url=nobody)
        hifi.add(to)
        # One key makes them one batch: too few failures to open the breaker for 30 s.
        waiting = [{"id": f"e{n}", "partitionkey": "k"} for n in range(20)]
        assert hifi.post("mended", waiting).status_code == 200
        hifi.wait_for_balance("mended/to", lambda b: b.waiting == 20, what="20 waiting")
        hifi.change(replace(to, url=right.url))
        assert right.wait_for(lambda: len(right.accepted_ids) == 20, timeout_s=PATIENCE_S)
        hifi.wait_for_balance("mended/to", lambda b: b.delivered == 20, what="20 delivered")
        assert max(right.accepted_ids.values()) == 1
    assert lane_starts(hifi) == starts
    assert hifi.balance("mended/to").unaccounted == 0


def test_a_destination_that_takes_its_time_is_waited_for_in_a_lane_of_its_own(
    hifi: RunningHifi,
) -> None:
    def late(_: int, request: Request) -> Reply:
        is_first = request.headers["hifi-attempt"] == "1"
        return Reply(503) if is_first else Reply(delay_s=2.5)

    with scripted_destination(late) as destination:
        to = Destination(stream="late", name="to", url=destination.url, timeout_s=60.0)
        hifi.add(to)
        assert hifi.post("late", [{"id": f"e{n}"} for n in range(20)]).status_code == 200
        hifi.wait_for_balance("late/to", lambda b: b.delivered == 20, what="20 delivered")
    moved = [dict(one.headers) for one in hifi.records(retry_topic("slow"))]
    mine = {one["event-id"] for one in moved if one["stream"] == b"late"}
    assert mine == {f"e{n}".encode() for n in range(20)}
    balance = hifi.balance("late/to")
    assert (balance.waiting, balance.dead, balance.unaccounted) == (0, 0, 0)


def write_by_hand(hifi: RunningHifi, rows: Sequence[RecordOut]) -> None:
    """Put records into Kafka that no process of Hifi would write."""
    asyncio.run(write_rows(hifi.kafka, rows, partition_of=lambda number, _: number % 2))


def test_malformed_retry_records_rest_and_stop_nobody(hifi: RunningHifi) -> None:
    """No headers, no value, absurd headers, too large: both of the tier's partitions continue."""
    tier = retry_topic("30s")
    mine = b"malformed-test"
    nothing: Any = None
    rows = [
        RecordOut(tier, mine, b"{}"),
        RecordOut(tier, mine, nothing),
        RecordOut(tier, mine, b"{}", (("", b""), ("v", b"\xff"), ("v", nothing), ("\0", b"1"))),
        RecordOut(tier, mine, b"{}", tuple((f"h{n}", b"x" * 20) for n in range(5_000))),
        RecordOut(tier, mine, b"v" * 2_000_000),
        RecordOut(tier, mine, b"{}", (("v", b"1"), ("attempt", b"1e9"), ("origin-offset", b"-1"))),
    ]
    starts = lane_starts(hifi)
    write_by_hand(hifi, [row for row in rows for _ in range(2)])
    with scripted_destination(fail_first) as destination:
        hifi.add(Destination(stream="beside", name="to", url=destination.url))
        assert hifi.post("beside", [{"id": f"e{n}"} for n in range(20)]).status_code == 200
        hifi.wait_for_balance("beside/to", lambda b: b.delivered == 20, what="20 delivered")

    def resting() -> list[Any]:
        return [one for one in hifi.records(DEAD) if one.key == mine]

    wait_until(lambda: len(resting()) >= 2 * len(rows), what="all are dead letters", look_s=1.0)
    assert {dict(one.headers)["reason"] for one in resting()} == {b"malformed_retry_record"}
    assert len(resting()) == 2 * len(rows)
    assert lane_starts(hifi) == starts


def test_a_redriven_event_waits_and_is_delivered_in_the_books_too(hifi: RunningHifi) -> None:
    with scripted_destination(always(401)) as destination:
        to = Destination(stream="redriven", name="to", url=destination.url)
        hifi.add(to)
        assert hifi.post("redriven", [{"id": f"e{n}"} for n in range(30)]).status_code == 200
        hifi.wait_for_balance("redriven/to", lambda b: b.dead == 30, what="30 dead")
        # The destination gives no answer before the events have been seen waiting.
        is_seen = threading.Event()
        destination.script = lambda _, __: Reply(200 if is_seen.wait(PATIENCE_S) else 503)
        wanted = DeadLetterFilter(stream="redriven", reason="status_401")

        def send_again() -> Redriven:
            letters = KafkaDeadLetters(hifi.kafka, schedule=RetrySchedule())
            return asyncio.run(letters.redrive(wanted, redrive_id="r", rate_per_s=1e6))

        assert send_again() == Redriven(count=30)
        hifi.wait_for_balance("redriven/to", lambda b: b.waiting == 30, what="30 wait again")
        is_seen.set()
        hifi.wait_for_balance("redriven/to", lambda b: b.delivered == 30, what="30 delivered")
        assert send_again() == Redriven(already=30)
        assert max(destination.accepted_ids.values()) == 1
    balance = hifi.balance("redriven/to")
    assert (balance.acked, balance.dead, balance.waiting, balance.unaccounted) == (30, 0, 0, 0)


def test_what_waits_for_a_removed_destination_rests_with_that_reason(hifi: RunningHifi) -> None:
    to = Destination(stream="removed", name="to", url="http://127.0.0.1:9/")
    hifi.add(to)
    assert hifi.post("removed", [{"id": f"e{n}"} for n in range(5)]).status_code == 200
    hifi.wait_for_balance("removed/to", lambda b: b.waiting == 5, what="5 waiting")
    hifi.remove_added()
    hifi.wait_for_balance("removed/to", lambda b: b.dead == 5, what="5 dead")
    dead = [dict(one.headers) for one in hifi.dead_letters("removed/to")]
    assert {one["reason"] for one in dead} == {b"destination_gone"}
    assert {one["event-id"] for one in dead} == {f"e{n}".encode() for n in range(5)}
