"""A receipt holds the outcome of each failed request, bounded and without secrets."""

import socket
from dataclasses import replace

from shared.config.destination import Destination
from shared.proof.receipt import ReceiptOutcome
from tests.support.delivery.deliver_runs import (
    events,
    plan_for,
    receipts,
    run,
    sample,
    waiting_record,
)
from tests.support.servers.scripted_destination import Reply, scripted_destination


def test_each_failed_try_leaves_its_answer_in_the_receipt() -> None:
    said = Reply(503, {"server": "edge", "set-cookie": "a=secret"}, b"no healthy\n\x1b[2J upstream")
    with scripted_destination(lambda _, __: said) as destination:
        (receipt,) = receipts(run(events(5), plan_for(sample(destination))))
    assert receipt.outcome is ReceiptOutcome.WAITING
    assert [
        (each.reason, each.status, each.text, each.headers["server"])
        for each in receipt.failed_tries
    ] == [("status_503", 503, "no healthy [2J upstream", "edge")] * 3
    assert b"secret" not in receipt.to_json()
    assert receipt.failed_tries[-1].at_ms == receipt.ended_at_ms


def test_a_hostile_destination_cannot_fill_the_log_with_its_answers() -> None:
    said = Reply(503, {"via": "v" * 8_000}, "\u00e9".encode() * 40_000)
    with scripted_destination(lambda _, __: said) as destination:
        (long,) = receipts(run(events(5), plan_for(sample(destination))))
    with scripted_destination(lambda _, __: Reply(503, body=b"")) as destination:
        (short,) = receipts(run(events(5), plan_for(sample(destination))))
    assert len(long.to_json()) - len(short.to_json()) < 1_100
    assert long.failed_tries[0].text.startswith("\u00e9" * 80)


def test_a_destination_that_does_not_answer_leaves_what_the_network_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    to = Destination("demo", "sample", f"http://127.0.0.1:{port}/")
    (receipt,) = receipts(run(events(1), plan_for(to)))
    assert {(each.reason, each.status) for each in receipt.failed_tries} == {("connect_refused", 0)}


def test_what_comes_out_of_a_retry_tier_keeps_its_answers_as_well() -> None:
    with scripted_destination(lambda _, __: Reply(500, body=b"still ill")) as destination:
        plan = replace(plan_for(sample(destination)), reads="retry")
        (receipt,) = receipts(run([waiting_record("demo/sample")], plan))
    assert (receipt.is_retry, receipt.attempt) == (True, 2)
    assert {(each.status, each.text) for each in receipt.failed_tries} == {(500, "still ill")}
    assert all(each.took_ms < 5_000 for each in receipt.failed_tries)


def test_what_was_taken_at_once_pays_nothing() -> None:
    with scripted_destination(lambda _, __: Reply(200)) as destination:
        (receipt,) = receipts(run(events(5), plan_for(sample(destination))))
    assert receipt.failed_tries == ()
    assert b"failed_tries" not in receipt.to_json()
