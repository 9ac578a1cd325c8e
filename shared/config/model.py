"""The base class of all configured objects: it reads them from JSON and validates them.

A record of the config topic may have been written by a newer Hifi. Unknown members are set aside
and written back, so that no setting is lost. Only the API refuses unknown members.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cache, partial
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, Discriminator, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from pydantic.json_schema import SkipJsonSchema

# Strict: "5" is not a number and 1 is not a flag.
CONFIG = ConfigDict(strict=True, hide_input_in_errors=True)
# The value of such a setting may be a secret in plain text, so errors do not repeat it.
_NEVER_REPEATED = frozenset(
    {
        *("auth", "client_certificate", "password", "proxy", "secret_headers", "secret_url"),
        *("secrets", "signing_secrets"),
    }
)
_NO_SUCH = "there is no such field"
_SENTENCES = {
    "missing": "it is missing",
    "extra_forbidden": _NO_SUCH,
    "unexpected_keyword_argument": _NO_SUCH,
}
# Pydantic puts the kind of an object into its paths; these parts are not members.
_KINDS_IN_PATHS = frozenset({"[key]", "basic", "bearer", "oauth2"}) | {
    f"[{member}]"
    for member in (
        *("where", "select", "explode", "enrich", "call", "window", "dedupe"),
        *("stream", "table", "dead", "archive", "database"),
    )
}
_SUBJECT = re.compile(r"^\w+(?= should )")


class ConfigError(ValueError):
    """A setting is wrong; the text names the setting and says which values are right."""

    def __init__(self, setting: str, wrong: str) -> None:
        super().__init__(f"{setting}: {wrong}" if setting else wrong)
        # Its parts are joined by dots; empty if the whole object is wrong.
        self.setting = setting
        self.wrong = wrong


@dataclass(frozen=True, slots=True, config=CONFIG)
class ConfigObject(ABC):
    """An object of the config topic."""

    # Members written by a newer Hifi; nested ones are under the name of their object.
    others: Annotated[dict[str, Any], SkipJsonSchema()] = field(
        default_factory=dict, kw_only=True, repr=False
    )

    @property
    @abstractmethod
    def config_key(self) -> bytes:
        """The key of its record."""

    @property
    def owner(self) -> str:
        """The owner for whom its secrets are sealed."""
        return self.config_key.decode()

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Make an object from JSON members; ConfigError names the first wrong one."""
        known = {name: value for name, value in fields.items() if name != "others"}
        try:
            # From JSON, pydantic accepts a list for a tuple and a dict for an object.
            made: Self = _adapter(cls).validate_json(json.dumps(known))
        except ValidationError as error:
            raise config_error(error.errors()[0]) from None
        others = _beyond(fields, made.known_fields())
        return replace(made, others=others) if others else made

    def known_fields(self, *, with_defaults: bool = True) -> dict[str, Any]:
        """Return the object as JSON members, without unknown ones."""
        known: dict[str, Any] = _adapter(type(self)).dump_python(
            self,
            mode="json",
            by_alias=True,
            exclude={"others"},
            exclude_defaults=not with_defaults,
        )
        return known

    def to_fields(self, *, with_defaults: bool = True) -> dict[str, Any]:
        """Return the object as JSON members, with unknown ones."""
        return _merged(self.known_fields(with_defaults=with_defaults), self.others)

    def to_json(self) -> bytes:
        return json.dumps(self.to_fields(), sort_keys=True).encode()


def config_error(first: Mapping[str, Any]) -> ConfigError:
    """Make one sentence without secrets of pydantic's first error."""
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return cause
    path = [str(part) for part in first["loc"] if str(part) not in _KINDS_IN_PATHS]
    setting = ".".join(path)
    if isinstance(cause, ValueError):
        return ConfigError(setting, str(cause))
    if first["type"] in _SENTENCES:
        return ConfigError(setting, _SENTENCES[first["type"]])
    if first["type"] == "union_tag_invalid":
        ctx = first["ctx"]
        return ConfigError(setting, f"the kind {ctx['tag']!r} is not one of {ctx['expected_tags']}")
    given = first["input"]
    is_shown = isinstance(given, str | int | float) and not _NEVER_REPEATED & set(path)
    subject = repr(given)[:100] if is_shown else "it"
    return ConfigError(setting, _SUBJECT.sub(lambda _: subject, first["msg"]))


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _beyond(given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given members that are not known, at any depth."""
    beyond: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            beyond[name] = value
        elif isinstance(value, dict) and isinstance(known[name], dict):
            inner = _beyond(value, known[name])
            beyond.update({name: inner} if inner else {})
        elif isinstance(value, list) and any(map(_is_beyond, value, known[name])):
            beyond[name] = value
    return beyond


def _is_beyond(given: object, known: object) -> bool:
    return isinstance(given, dict) and isinstance(known, dict) and bool(_beyond(given, known))


def _merged(known: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(known)
    for name, value in others.items():
        if name not in known:
            merged[name] = value
        elif isinstance(known[name], dict) and isinstance(value, dict):
            merged[name] = _merged(known[name], value)
        elif isinstance(known[name], list) and isinstance(value, list):
            # Match items by their members: items may have been added or removed since.
            merged[name] = [
                next(filter(partial(_is_same, each), value), each) for each in known[name]
            ]
    return merged


def _is_same(known: Any, given: Any) -> bool:
    """Whether the given object is the known one, perhaps with more members."""
    if not isinstance(known, dict) or not isinstance(given, dict):
        return False
    both = known.keys() & given.keys()
    return bool(both) and all(known[name] == given[name] for name in both)


def one_of(what: str, *kinds: type[Any]) -> BeforeValidator:
    """Return a validator that refuses objects without exactly one member that names their kind."""
    there = ", ".join(kind.member for kind in kinds)

    def check_kind(given: Any) -> Any:
        if isinstance(given, kinds):
            return given
        if not isinstance(given, dict) or not given:
            raise ValueError(f"a {what} is an object with one of: {there}")
        named = [kind.member for kind in kinds if kind.member in given]
        if not named:
            raise ValueError(f"there is no {what} {next(iter(given))!r}; there are: {there}")
        if len(named) > 1:
            raise ValueError(f"a {what} has one of: {there}; this one has {' and '.join(named)}")
        return given

    return BeforeValidator(check_kind)


def by_member(*kinds: type[Any]) -> Discriminator:
    """Return a discriminator by the member that names an object's kind."""
    members = [kind.member for kind in kinds]

    def kind_of(given: Any) -> str:
        named = given if isinstance(given, dict) else {given.member}
        return next(f"[{member}]" for member in members if member in named)

    return Discriminator(kind_of)
