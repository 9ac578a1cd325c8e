"""Types of values in settings: names, pointers, web addresses, sealed secrets."""

import re
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PlainSerializer, WithJsonSchema

from shared.event.topics import NAME_PATTERN

# The prefix of a sealed secret; any other text is refused, as it is not sealed.
SEALED_PREFIX = "sealed:v1:"
# A chain of three certificates has 6 kB; a sealed key is a third longer than the key.
PEM_CHARS_MAX = 65_536
_SEALED_CHARS_MAX = 2 * PEM_CHARS_MAX
# The longest header (Apache and nginx accept 8 KiB of headers in all by default).
HEADER_CHARS_MAX = 4096

FUNCTION_PATTERN = r"[a-z][a-z0-9_]{0,63}\.[a-z][a-z0-9_]{0,63}"
# Members only: an array index does not name an entity. Eight levels reach any field that people
# name; the gateway accepts no deeper ones either.
_POINTER = r"(/([^/~]|~0|~1)+){%d,8}"


def check(is_right: Callable[[str], object], wrong: str) -> AfterValidator:
    """Return a validator that refuses a wrong text with `wrong`, where {!r} shows the text."""

    def checked(text: str) -> str:
        if not is_right(text):
            raise ValueError(wrong.format(text))
        return text

    return AfterValidator(checked)


def _pattern(pattern: str) -> Any:
    return Field(json_schema_extra={"pattern": f"^{pattern}$"})


def is_web_address(text: str) -> bool:
    # urlsplit silently drops line breaks and accepts blanks; no client can send either.
    if not text.isprintable() or " " in text:
        return False
    try:
        url = urlsplit(text)
        return url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


Name: TypeAlias = Annotated[
    str,
    check(
        NAME_PATTERN.fullmatch,
        "{!r} is not a name; use 1 to 100 of a-z, 0-9, _ and -, starting with a letter or digit",
    ),
    _pattern(NAME_PATTERN.pattern),
]
# The name of a package that an operator has installed, and the name of a function in it.
FunctionName: TypeAlias = Annotated[
    str,
    check(
        re.compile(FUNCTION_PATTERN).fullmatch,
        "{!r} is not a function's name; use PACKAGE.FUNCTION, each 1 to 64 of a-z, 0-9 and _",
    ),
    _pattern(FUNCTION_PATTERN),
]
Names: TypeAlias = Annotated[frozenset[Name], PlainSerializer(sorted)]
# A JSON pointer to a member; the empty one points to the whole event.
Pointer: TypeAlias = Annotated[
    str,
    check(re.compile(_POINTER % 0).fullmatch, "{!r} is not a pointer such as /user/id"),
    _pattern(_POINTER % 0),
]
MemberPointer: TypeAlias = Annotated[
    str,
    check(
        re.compile(_POINTER % 1).fullmatch, "{!r} is not a pointer to a member, such as /user/id"
    ),
    _pattern(_POINTER % 1),
]
WebAddress: TypeAlias = Annotated[
    str,
    check(is_web_address, "{!r} is not an http or https address with a host"),
    Field(json_schema_extra={"format": "uri"}),
]
# A secret is set as plain text, stored sealed, and shown as a placeholder.
Sealed: TypeAlias = Annotated[
    str,
    # The message must not contain the value: it may be the plain secret.
    check(lambda secret: secret.startswith(SEALED_PREFIX), "a secret must be sealed"),
    check(
        lambda secret: len(secret) <= _SEALED_CHARS_MAX,
        f"it is not a text of 1 to {_SEALED_CHARS_MAX} characters",
    ),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {
                    "type": "object",
                    "description": "Stands for a secret, which is never shown; send it to keep it.",
                    "required": ["sealed"],
                    "properties": {"sealed": {"type": "string"}},
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
