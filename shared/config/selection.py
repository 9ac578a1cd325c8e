"""Selects the events that a destination wants, and the members that it gets.

Events are parsed only for destinations with a filter or a list of members. Members keep their exact
bytes (numbers, escapes), because they are cut out of the text and never rewritten. An event that is
not valid JSON is sent whole: we do not withhold events that we cannot read.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, assert_never, get_args

from pydantic import (
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.dataclasses import dataclass

from shared.config.model import CONFIG, ConfigError, config_error
from shared.config.values import MemberPointer

Test = Literal["equals", "one_of", "exists", "prefix"]
# Each event is compared with the whole list of wanted values.
_VALUES_MAX = 100

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\n\r]*")
_Scalar: TypeAlias = Annotated[
    str | int | float | bool | None,
    WithJsonSchema({"type": ["string", "number", "boolean", "null"]}),
]
_Scalars: TypeAlias = Annotated[tuple[_Scalar, ...], Field(min_length=1, max_length=_VALUES_MAX)]
# The operands of the tests.
_OPERANDS: Mapping[Test, TypeAdapter[Any]] = {
    "equals": TypeAdapter(_Scalar, config=CONFIG),
    "one_of": TypeAdapter(_Scalars, config=CONFIG),
    "exists": TypeAdapter(bool, config=CONFIG),
    "prefix": TypeAdapter(str, config=CONFIG),
}


@dataclass(frozen=True, slots=True, config=CONFIG)
class Condition:
    """A condition on one member of an event; in JSON a pointer and one test with its operand."""

    pointer: MemberPointer
    test: Test
    operand: Any

    @model_validator(mode="after")
    def _check_operand(self) -> "Condition":
        try:
            _OPERANDS[self.test].validate_python(self.operand)
        except ValidationError:
            wrong = f"{self.operand!r} is not an operand of {self.test}"
            raise ConfigError("filter", wrong) from None
        return self

    def to_fields(self) -> dict[str, Any]:
        return {"pointer": self.pointer, self.test: self.operand}

    @classmethod
    def of(cls, fields: object) -> "Condition":
        """Read a condition from its JSON object."""
        if isinstance(fields, Condition):
            return fields
        if not isinstance(fields, dict) or len(fields) != 2 or "pointer" not in fields:  # noqa: PLR2004 - pointer, test
            raise ConfigError("filter", f"a condition has a pointer and one of {get_args(Test)}")
        test = next(name for name in fields if name != "pointer")
        operand = fields[test]
        try:
            return cls(
                fields["pointer"], test, tuple(operand) if isinstance(operand, list) else operand
            )
        except ValidationError as error:
            raise ConfigError("filter", config_error(error.errors()[0]).wrong) from None


# In settings a condition is a JSON object with the test's name as a member.
ConditionSetting: TypeAlias = Annotated[
    Condition,
    PlainValidator(Condition.of),
    PlainSerializer(Condition.to_fields),
    WithJsonSchema(
        {
            "anyOf": [
                {
                    "type": "object",
                    "required": ["pointer", test],
                    "properties": {"pointer": {"type": "string"}, test: operand.json_schema()},
                    "additionalProperties": False,
                }
                for test, operand in _OPERANDS.items()
            ]
        }
    ),
]


def is_wanted(value: bytes, conditions: Sequence[Condition]) -> bool:
    """Whether an event meets every condition."""
    if not conditions:
        return True
    try:
        event = json.loads(value)
    except (ValueError, RecursionError):
        return True
    return all(_meets(event, condition) for condition in conditions)


def keep(value: bytes, pointers: Sequence[str]) -> bytes:
    """Return the event with only these members, in the event's own order."""
    if not pointers:
        return value
    try:
        text = value.decode()
        start = _skip(text, 0)
        if text[start : start + 1] != "{":
            return value
        return _cut(text, start, map(_names, pointers)).encode()
    except (ValueError, RecursionError):
        return value


def _meets(event: object, condition: Condition) -> bool:
    is_there, value = _find(event, condition.pointer)
    match condition.test:
        case "exists":
            return is_there is condition.operand
        case "equals":
            return is_there and _is_same(value, condition.operand)
        case "one_of":
            return is_there and any(_is_same(value, wanted) for wanted in condition.operand)
        case "prefix":
            return isinstance(value, str) and value.startswith(condition.operand)
        case _:
            assert_never(condition.test)


def _find(event: object, pointer: str) -> tuple[bool, object]:
    for name in _names(pointer):
        if not isinstance(event, dict) or name not in event:
            return False, None
        event = event[name]
    return True, event


def _names(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _is_same(value: object, wanted: object) -> bool:
    # In JSON, true does not equal 1, but 1.0 does.
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted


def _cut(text: str, start: int, wanted: Iterable[Sequence[str]]) -> str:
    """Return the object that begins at `start` with only the wanted members."""
    within: defaultdict[str, list[Sequence[str]]] = defaultdict(list)
    for name, *deeper in wanted:
        within[name].append(deeper)
    kept = []
    for name, name_text, value_start, value_end in _members(text, start):
        if [] in within.get(name, ()):
            kept.append(f"{name_text}:{text[value_start:value_end]}")
        elif name in within and text[value_start] == "{":
            kept.append(f"{name_text}:{_cut(text, value_start, within[name])}")
    return "{" + ",".join(kept) + "}"


def _members(text: str, start: int) -> Iterator[tuple[str, str, int, int]]:
    """Yield each member's name, the name's own text, and where its value begins and ends."""
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        name, name_end = _DECODER.raw_decode(text, at)
        colon = _skip(text, name_end)
        if not isinstance(name, str) or text[colon : colon + 1] != ":":
            raise ValueError("not JSON")
        value_start = _skip(text, colon + 1)
        _, value_end = _DECODER.raw_decode(text, value_start)
        yield name, text[at:name_end], value_start, value_end
        at = _skip(text, value_end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    assert blank is not None, "the pattern matches the empty text as well"
    return blank.end()
