"""Values of queries and orders: times with their zone, and places of records."""

from datetime import datetime
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, PlainValidator, WithJsonSchema

from shared.retry.dead_letter import Place


def _time_ms(text: object) -> int:
    try:
        at = datetime.fromisoformat(str(text))
        at_ms = round(at.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise ValueError("it is not a time such as 2026-11-21T10:00:00Z") from error
    if at.tzinfo is None:
        raise ValueError("it is not a time with a zone, such as 2026-11-21T10:00:00Z")
    return at_ms


TimeMs: TypeAlias = Annotated[
    int, BeforeValidator(_time_ms), WithJsonSchema({"type": "string", "format": "date-time"})
]
# Where a record lies: its Kafka partition and its offset.
PlaceText: TypeAlias = Annotated[
    Place,
    PlainValidator(lambda text: Place.of(str(text))),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,18}:[0-9]{1,18}$"}),
]
