"""Puts one fault into a chaos run by hand, to show that the recount finds it.

The faults are around Hifi: a sender that assumes a 2xx, a destination that denies a batch after it
answered 200, a program that writes one tenant's event into another's topic.
"""

import asyncio
from typing import Literal

from shared.event.envelope import event_headers
from shared.event.record import RecordOut
from shared.event.topics import stream_topic
from shared.runtime.clock import now_ms
from tests.chaos.customers import Customers
from tests.chaos.destinations import Destinations
from tests.chaos.world import World
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.kafka.kafka_log import write_rows

PutIn = Literal["lost receipt", "swapped topic", "false 2xx"]
# The recount's name for each fault, followed by the names of its consequences.
FOUND_AS: dict[PutIn, tuple[str, ...]] = {
    "lost receipt": ("false receipt", "unaccounted"),
    "swapped topic": ("foreign", "statement"),
    "false 2xx": ("false ack", "statement"),
}


def put_in(fault: PutIn, world: World, customers: Customers, destinations: Destinations) -> str:
    """Put the fault in; return a description of it."""
    (victim, victims_stream), (other, others_stream) = list(customers.senders)[:2]
    sender = customers.senders[victim, victims_stream]
    match fault:
        case "lost receipt":
            destinations.denies_one = True
            wait_until(lambda: bool(destinations.denied), what="a destination has denied an event")
            return (
                f"put in: {destinations.denied[0]} is denied by the destination that answered 200"
            )
        case "false 2xx":
            sender.lies_once = True
            wait_until(lambda: not sender.lies_once, what="a request was not sent")
            return f"put in: a request for {victims_stream} was not sent and counts as stored"
        case "swapped topic":
            wait_until(lambda: bool(sender.acked), what="an event is acknowledged")
            event_id = min(sender.acked)
            at_ms = now_ms()
            headers = event_headers(event_id=event_id, event_time_ms=at_ms, accepted_at_ms=at_ms)
            value = b'{"id":"%s","kind":"a"}' % event_id.encode()
            row = RecordOut(stream_topic(others_stream), None, value, headers)
            asyncio.run(write_rows(world.kafka, [row]))
            return f"put in: {victim}'s {event_id} is in {other}'s topic"
