"""Deliveries of restored events are labelled, wherever the events waited."""

from dataclasses import replace

from shared.event.derived import RESTORED
from shared.event.record import Origin, RecordIn
from shared.event.topics import retry_topic
from tests.support.delivery.deliver_runs import events, plan_for, run, sample
from tests.support.servers.scripted_destination import always, scripted_destination


def test_what_a_restore_has_put_back_says_so_wherever_it_waits() -> None:
    def restored(restore_id: bytes, first: int) -> list[RecordIn]:
        (event,) = events(1, first=first)
        return [replace(event, headers=(*event.headers, (RESTORED, restore_id)))]

    with scripted_destination(always(503)) as destination:
        plan = plan_for(sample(destination))
        left = [
            waits
            for rows in (restored(b"spring", 0), restored(b"no\r\nid: of ours", 1))
            for waits in run(rows, plan)
            if waits.topic == retry_topic("30s")
        ]
        said = [request.headers.get(RESTORED) for request in destination.requests]
        assert said == ["spring"] * 3 + [None] * 3
    with scripted_destination() as destination:
        records = [
            RecordIn(Origin(one.topic, 0, at), 0, one.key, one.value, one.headers)
            for at, one in enumerate(left)
        ]
        plan = replace(plan_for(sample(destination)), reads="retry")
        run(records, plan)
        assert [request.headers.get(RESTORED) for request in destination.requests] == ["spring"]
