"""Decides how a setting is found wrong: by its name, with what it takes, as a ConfigError.

What is checked has often come from JSON, so it may be of any type.
"""

import re
from collections.abc import Collection
from urllib.parse import urlsplit

from shared.event.topics import is_name

# Members only: the order of an array is no name for an entity. Eight levels reach any field that
# people name; the gateway takes no deeper ones either.
_POINTER = re.compile(r"(/([^/~]|~0|~1)+){0,8}")


class ConfigError(ValueError):
    """A setting is wrong; the text names it and says what it takes."""


def check_name(what: str, name: object) -> None:
    if not (isinstance(name, str) and is_name(name)):
        raise ConfigError(
            f"{what}: {name!r} is not a name; use 1 to 100 of a-z, 0-9, _ and -,"
            " starting with a letter or digit"
        )


def check_count(what: str, number: object, low: int, high: int) -> None:
    # 2.5 is within a range and no count; and True is 1.
    if type(number) is not int:
        raise ConfigError(f"{what}: {number!r} is not a whole number")
    check_range(what, number, low, high)


def check_range(what: str, number: object, low: float, high: float) -> None:
    if type(number) is not int and type(number) is not float:
        raise ConfigError(f"{what}: {number!r} is not a number")
    if not low <= number <= high:
        raise ConfigError(f"{what}: {number} is not from {low} to {high}")


def check_flag(what: str, flag: object) -> None:
    if type(flag) is not bool:
        raise ConfigError(f"{what}: {flag!r} is not true or false")


def check_one_of(what: str, value: object, known: Collection[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise ConfigError(f"{what}: {value!r} is none of {known}")


def check_text(what: str, text: object, *, chars_max: int, may_be_empty: bool = False) -> None:
    if type(text) is not str or len(text) > chars_max or not (text or may_be_empty):
        low = 0 if may_be_empty else 1
        raise ConfigError(f"{what}: it is not a text of {low} to {chars_max} characters")


def check_pointer(what: str, pointer: object) -> None:
    """A JSON pointer to a member; the empty one is the whole."""
    if type(pointer) is not str or not _POINTER.fullmatch(pointer):
        raise ConfigError(f"{what}: {pointer!r} is not a pointer such as /user/id")


def check_web_address(what: str, text: object) -> None:
    if not isinstance(text, str) or not _is_web_address(text):
        raise ConfigError(f"{what}: {text!r} is not an http or https address with a host")


def _is_web_address(text: str) -> bool:
    # What urlsplit would silently drop (line breaks) or let pass (blanks) no client can send to.
    if not text.isprintable() or " " in text:
        return False
    try:
        url = urlsplit(text)
        return url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        return False
