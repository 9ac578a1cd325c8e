"""Lists the failed requests to destinations that brought some events."""

from collections.abc import Collection, Mapping
from itertools import islice

from pydantic import BaseModel, Field

from shared.event.record import Origin
from shared.event.topics import stream_and_name
from shared.proof.last_answer import SHOWN_CHARS_MAX
from shared.proof.trail import Trail

# Tries that an answer shows; all are counted.
TRIES_MAX = 200
_IDS_MAX = 20


class ShownTry(BaseModel):
    """A request that a destination did not take."""

    destination: str
    at_ms: int = Field(description="When it ended.")
    took_ms: int
    reason: str = Field(description="status_503, connect_refused, ...")
    status: int = Field(description="0: no answer came.")
    text: str = Field(description="How the answer began, or what the network said.")
    headers: dict[str, str]
    attempt: int = Field(description="In which round it was.")
    batch_id: str
    batch_events: int = Field(description="How many events were in it.")
    events: list[str] = Field(description="Ids of events of this request that were in it.")


def failed_tries(
    trail: Trail, shown: Collection[Origin], ids: Mapping[Origin, str]
) -> list[ShownTry]:
    """Return the tries of the shown events, in the order of time; `ids` cover their request."""
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
