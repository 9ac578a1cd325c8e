"""Makes the events that both sides of a comparison send: 500 bytes of JSON each."""

import json

EVENT_BYTES = 500


def event(number: int) -> bytes:
    fields = {"id": f"event-{number:06d}", "type": "play.paused", "pad": ""}
    length = len(json.dumps(fields, separators=(",", ":")))
    fields["pad"] = "x" * (EVENT_BYTES - length)
    return json.dumps(fields, separators=(",", ":")).encode()


def body(count: int) -> bytes:
    """Return `count` events as one JSON array."""
    return b"[" + b",".join(event(number) for number in range(count)) + b"]"
