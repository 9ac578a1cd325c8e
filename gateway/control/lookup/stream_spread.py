"""The route that shows how a stream's events spread over Kafka partitions, and their keys."""

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from gateway.control.requests import PathName, Plane, Reader, also, as_json
from shared.event.spread import hottest
from shared.event.topics import stream_topic

router = APIRouter()


class FrequentKey(BaseModel):
    """An ordering key that at least a tenth of the examined events have."""

    key: str
    part: float


class StreamSpread(BaseModel):
    """The spread of the last hour's events."""

    since_ms: int
    partitions: list[int] = Field(description="Number of events in each Kafka partition.")
    hot: int | None = Field(
        description="The Kafka partition that got more than twice its share; null if there is none,"
        " or if there are fewer than 1,000 events in all."
    )
    looked_at: int = Field(
        description="Number of events read: the newest in the fullest Kafka partition."
    )
    keys: list[FrequentKey] = Field(description="Their ordering keys, the most frequent first.")


@router.get(
    "/v1/streams/{stream}/spread",
    response_model=StreamSpread,
    openapi_extra=also("overloaded", "kafka_unavailable"),
)
async def show_spread(stream: PathName, caller: Reader, plane: Plane) -> Response:
    """Show how the last hour's events spread over Kafka partitions, and the most frequent keys."""
    caller.stream(stream, plane.configuration)
    # Keys are part of other senders' events.
    caller.check("read")
    async with plane.event_turns.of(caller.tenant):
        spread = await plane.stream_pages.spread(stream_topic(stream))
    if spread is None:
        return as_json({"since_ms": 0, "partitions": [], "hot": None, "looked_at": 0, "keys": []})
    hour, newest = spread
    return as_json(
        {
            "since_ms": hour.since_ms,
            "partitions": hour.counts,
            "hot": hottest(hour.counts),
            "looked_at": newest.count,
            "keys": [{"key": key, "part": round(part, 4)} for key, part in newest.keys.top()],
        }
    )
