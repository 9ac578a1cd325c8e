"""From delivery to verdict: a destination's real answers become the word that people see."""

from dataclasses import replace
from pathlib import Path

import pytest

from observe.lag.progress import Progress
from observe.lag.trouble import LATEST_MS
from observe.lag.verdict import stream_verdict
from shared.event.topics import RECEIPTS, STATE
from shared.flow.flow_record import open_flow_record
from shared.proof.overview import Finding
from shared.proof.receipt import receipts_of
from shared.runtime.clock import now_ms
from tests.support.console.console_fixtures import destination_view
from tests.support.delivery.deliver_runs import events, plan_for, run, sample
from tests.support.servers.scripted_destination import Reply, Script, scripted_destination


def found(script: Script, folder: Path, *, batch_count_max: int = 1) -> Finding:
    """Return the finding after a task with twenty events got such answers."""
    with scripted_destination(script) as destination:
        to = sample(destination, batch_count_max=batch_count_max)
        plan = replace(plan_for(to), flow_folder=folder, time_box_s=1.0)
        outcomes = run(events(20), plan)
    progress, at_ms = Progress(to.id), now_ms()
    for row in outcomes:
        for receipt in receipts_of(row.value) if row.topic == RECEIPTS else ():
            assert receipt is not None
            progress.take(receipt, now_ms=at_ms)
    (record,) = [open_flow_record(row.value) for row in outcomes if row.topic == STATE]
    assert record is not None
    view = replace(
        destination_view("demo", "sample", at_ms=at_ms),
        minutes=(),
        lately=progress.recent.read(now_ms=at_ms),
        last_refusal=record.flow.last_refusal,
    )
    latest = progress.recent.read(now_ms=at_ms, span_ms=LATEST_MS)
    return stream_verdict(view, to, record, latest, slow_after_s=30, now_ms=now_ms())


@pytest.mark.parametrize(
    ("reply", "word", "cause", "says"),
    [
        (Reply(200), "OK", "", ""),
        (Reply(401, body=b"who?"), "REJECTING", "status_401", "20 of 20 refused in 5 min; 401"),
        (Reply(400, body=b"what?"), "REJECTING", "status_400", "20 of 20 refused in 5 min; 400"),
        (Reply(503, body=b"no upstream"), "FAILING", "status_503", ": no upstream"),
        (Reply(breaks_off=True), "FAILING", "reset_after_sent", "reset after sent"),
        (Reply(429, {"retry-after": "60"}), "RATE-LIMITED", "status_429", "429"),
        # The first answers suffice, however many events wait.
        (Reply(delay_s=1.1), "SLOW", "slow_answers", "it takes "),
    ],
)
def test_the_word_and_the_cause_are_those_of_the_answers(
    tmp_path: Path, reply: Reply, word: str, cause: str, says: str
) -> None:
    finding = found(lambda _, __: reply, tmp_path)
    assert (finding.verdict.value, finding.cause) == (word, cause)
    assert says in finding.reason


def test_a_few_bad_events_among_good_ones_are_no_trouble(tmp_path: Path) -> None:
    def one_in_ten(number: int, _: object) -> Reply:
        return Reply(400 if number % 10 == 5 else 200)

    assert found(one_in_ten, tmp_path).verdict.value == "OK"
