"""Shows the bytes of an event in an answer that is JSON."""

import base64
import json
from typing import Any


def payload_of(value: bytes) -> dict[str, Any]:
    """As JSON if it is that, else as CloudEvents writes bytes."""
    try:
        return {"data": json.loads(value.decode(), parse_constant=_refuse)}
    except (ValueError, RecursionError):
        return {"data_base64": base64.b64encode(value).decode()}


def _refuse(constant: str) -> None:
    """Refuse a constant that only Python takes for JSON."""
    raise ValueError(f"{constant} is not JSON")
