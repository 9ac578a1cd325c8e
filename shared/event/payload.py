"""Writes an event's bytes into a JSON answer."""

import base64
import json
from typing import Any


def payload_of(value: bytes) -> dict[str, Any]:
    """Return the value as JSON if it is JSON, else in Base64, as in CloudEvents."""
    try:
        return {"data": json.loads(value.decode(), parse_constant=_refuse)}
    except (ValueError, RecursionError):
        return {"data_base64": base64.b64encode(value).decode()}


def _refuse(constant: str) -> None:
    """Refuse a constant, such as NaN, that only Python accepts as JSON."""
    raise ValueError(f"{constant} is not JSON")
