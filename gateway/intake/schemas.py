"""Checks events against their stream's JSON Schema, each schema compiled once.

jsonschema-rs, because it is the fastest by far, follows all drafts, can be kept from fetching
what a schema refers to, and has patterns that cannot be made to take for ever.
"""

import json
from functools import lru_cache
from typing import Any

import jsonschema_rs
import msgspec

from gateway.intake.events import Event, Parsed, Rejection

# A person reads it; some validators' messages hold the whole event.
_DETAIL_LENGTH_MAX = 300
# As many as a machine has streams in use at a time; one compiled schema is some kilobytes.
_COMPILED_MAX = 1_000


class SchemaError(ValueError):
    """The text is not a JSON Schema; the error says where and why."""


@lru_cache(maxsize=_COMPILED_MAX)
def compiled(json_schema: str) -> Any:
    """The validator of a schema's text."""
    try:
        return jsonschema_rs.validator_for(
            json.loads(json_schema),
            # A schema must not make us call other machines.
            offline=True,
            # Linear in the text, whatever the pattern is.
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except ValueError as error:
        raise SchemaError(str(error).split("\n")[0]) from error


def keep_fitting(parsed: Parsed, json_schema: str) -> None:
    """Reject each event that the schema does not allow."""
    validator = compiled(json_schema)
    kept: list[Event] = []
    indexes: list[int] = []
    for index, event in zip(parsed.indexes, parsed.events, strict=True):
        fault = _fault(validator, event.value)
        if fault is None:
            kept.append(event)
            indexes.append(index)
        else:
            detail, pointer = fault
            where = parsed.where(index) + pointer
            parsed.rejections.append(Rejection(index, event.id, "schema_violation", detail, where))
    parsed.events, parsed.indexes = kept, indexes


def _fault(validator: Any, value: bytes) -> tuple[str, str] | None:
    try:
        instance = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        return f"it cannot be checked: {error}"[:_DETAIL_LENGTH_MAX], ""
    if validator.is_valid(instance):
        return None
    violation = next(validator.iter_errors(instance))
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in violation.instance_path)
    return violation.message[:_DETAIL_LENGTH_MAX], "".join(f"/{step}" for step in steps)
