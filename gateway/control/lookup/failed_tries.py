"""Lists the failed requests that carried some events to destinations."""

from collections.abc import Collection, Mapping
from itertools import islice

from pydantic import BaseModel, Field

from shared.event.record import Origin
from shared.event.topics import stream_and_name
from shared.proof.last_answer import SHOWN_CHARS_MAX
from shared.proof.trail import Trail

# The maximum number of failed requests that an answer shows; its count includes all of them.
TRIES_MAX = 200
_IDS_MAX = 20


class ShownTry(BaseModel):
    """A failed request to a destination."""

    destination: str
    at_ms: int = Field(description="When the request ended.")
    took_ms: int
    reason: str = Field(description="status_503, connect_refused, ...")
    status: int = Field(description="The answer's status; 0 if there was no answer.")
    text: str = Field(description="The beginning of the answer, or the network error.")
    headers: dict[str, str]
    attempt: int = Field(description="Number of the attempt that it belonged to.")
    batch_id: str
    batch_events: int = Field(description="Number of events in the request.")
    events: list[str] = Field(description="Ids of your request's events that were in it.")


def failed_tries(
    trail: Trail, shown: Collection[Origin], ids: Mapping[Origin, str]
) -> list[ShownTry]:
    """Return the failed requests that carried any of the shown events, oldest first.

    `ids` has all events of the caller's request.
    """
    about, request = Trail.of(shown), Trail.of(ids)
    tries = []
    for receipt in trail.receipts:
        if not receipt.failed_tries or not any(about.named(receipt)):
            continue
        together = (
            ids[Origin(*where, offset)]
            for where, first, end in request.named(receipt)
            for offset in range(first, end)
        )
        events = list(islice(together, _IDS_MAX))
        tries += [
            ShownTry(
                destination=stream_and_name(receipt.destination_id)[1],
                at_ms=failed.at_ms,
                took_ms=failed.took_ms,
                reason=failed.reason,
                status=failed.status,
                text=failed.text[:SHOWN_CHARS_MAX],
                headers=failed.headers,
                attempt=receipt.attempt,
                batch_id=receipt.batch_id,
                batch_events=receipt.event_count,
                events=events,
            )
            for failed in receipt.failed_tries
        ]
    return sorted(tries, key=lambda each: each.at_ms)
