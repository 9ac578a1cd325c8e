"""Makes numbered records for the retrier's benchmark, as delivery would write them."""

import asyncio

from shared.config.configuration import Stream
from shared.config.destination import Destination
from shared.event.envelope import Envelope, History
from shared.event.record import Origin, RecordOut
from shared.event.topics import fixed_specs, stream_topic, tier_of
from shared.retry.decision import RetryLater
from shared.retry.routing import route
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.kafka.config_records import write_config

STREAM = "bench"
DESTINATIONS = 20
# Nobody listens at port 9, that of the obsolete discard service.
_NOBODY = "http://127.0.0.1:9/"
_SCHEDULE = RetrySchedule()
_TIERS = {tier.name: tier for tier in _SCHEDULE.tiers}
_PAD = "x" * 150


def destinations(kafka: str, url: str) -> None:
    """Create the topics, a stream and its destinations, every second one of which is dead."""

    async def run() -> None:
        async with topic_admin(kafka) as admin:
            await admin.create_missing(fixed_specs(list(_TIERS)))
        targets = [
            Destination(stream=STREAM, name=f"d{n}", url=_NOBODY if n % 2 else url)
            for n in range(DESTINATIONS)
        ]
        await write_config(kafka, [Stream(STREAM), *targets])

    asyncio.run(run())


def waiting_record(number: int, topic: str) -> RecordOut:
    """Return an event that failed once and waits in the topic's tier."""
    at_ms = now_ms()
    envelope = Envelope(
        origin=Origin(stream_topic(STREAM), 0, number),
        value=b'{"id":"%d","pad":"%b"}' % (number, _PAD.encode()),
        key=None,
        stream=STREAM,
        event_id=str(number),
        event_time_ms=at_ms,
        accepted_at_ms=at_ms,
    )
    history = History(
        attempt_count=1,
        park_count=0,
        first_attempt_at_ms=at_ms,
        deadline_at_ms=at_ms + round(_SCHEDULE.deadline_s * 1000),
        not_before_ms=at_ms,
        cause="status_503",
        last_status=503,
        last_attempt_at_ms=at_ms,
    )
    waits = RetryLater(_TIERS[tier_of(topic)], history)
    return route(waits, envelope, f"{STREAM}/d{number % DESTINATIONS}", now_ms=at_ms)
