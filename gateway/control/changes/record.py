"""Makes the record of each change: its tenant, author, object and differences, without secrets.

Pure: the store writes these records in the same transaction as the changes.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gateway.authors import Author
from gateway.control.changes.revision import SHOWN_AS, etag_of
from shared.config.access import ApiKey, Tenant
from shared.config.configuration import ChangeCount, Configuration, Replacement
from shared.config.destination import Destination
from shared.config.model import ConfigObject

Value: TypeAlias = bool | int | float | str | list[str] | None
# Keys and the values to store under them; None removes a key.
Changes: TypeAlias = Sequence[tuple[bytes, bytes | None]]

# Changes kept for each tenant; a new one replaces the oldest.
KEPT_MAX = 10_000
# Settings in a record, and characters in one value, so that a record stays below 4 KB.
_SETTINGS_MAX = 12
_CHARS_MAX = 100
# An object's identity, which the record has in other members.
_IDENTITY = frozenset({"id", "name", "stream", "tenant", "generation"})
# Lists of names that are not secrets.
_LISTS = frozenset({"about", "functions", "origins", "scopes", "streams"})
_HALTS = frozenset({"is_paused", "is_disabled", "resumed_at_ms"})


class ChangedSetting(Struct, frozen=True):
    """A setting that differs; values that are long or could be secret are omitted."""

    name: str
    before: Value | UnsetType = UNSET
    after: Value | UnsetType = UNSET


class ChangeRecord(Struct, frozen=True, kw_only=True):
    """One change, as it is stored."""

    # Counts the tenant's changes from 1, without gaps.
    number: int
    # The owner of the object.
    tenant: str
    by: Author
    kind: str
    name: str
    did: str
    # The object's ETags; a new object has no `before`, a deleted one no `after`.
    before: str | None = None
    after: str | None = None
    settings: tuple[ChangedSetting, ...] = ()
    # Number of further settings that differ.
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Deed:
    """An action on an object that leaves the object as it is, such as a redrive of a stream."""

    tenant: str
    kind: str
    name: str
    did: str
    facts: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class RecordedChanges:
    """Changes of the configuration, and the records that go with them."""

    changes: Changes
    records: Sequence[tuple[bytes, bytes]]


def with_records(
    configuration: Configuration, changes: Changes, *, by: Author, did: str = ""
) -> RecordedChanges:
    """Return the changes with their records; `did` overrides the word found for each change."""
    made = [
        record
        for key, value in changes
        if (record := _record_of(configuration, key, value, by, did)) is not None
    ]
    return _numbered(configuration, changes, made)


def with_deed(configuration: Configuration, deed: Deed, *, by: Author) -> RecordedChanges:
    """Return the record of an action, and no changes of the configuration."""
    facts = [ChangedSetting(name, after=_told(value)) for name, value in deed.facts.items()]
    record = ChangeRecord(
        number=0,
        tenant=deed.tenant,
        by=by,
        kind=deed.kind,
        name=deed.name,
        did=deed.did,
        settings=tuple(facts),
    )
    return _numbered(configuration, [], [record])


def _numbered(
    configuration: Configuration, changes: Changes, made: Iterable[ChangeRecord]
) -> RecordedChanges:
    last = Counter({each: known.count for each, known in configuration.change_counts.items()})
    counts: dict[str, ChangeCount] = {}
    records = []
    for each in made:
        last[each.tenant] += 1
        number = last[each.tenant]
        counts[each.tenant] = ChangeCount(each.tenant, number)
        record = msgspec.structs.replace(each, number=number)
        place = f"{each.tenant}:{number % KEPT_MAX}".encode()
        records.append((place, msgspec.json.encode(record)))
    counted = [(each.config_key, each.to_json()) for each in counts.values()]
    return RecordedChanges([*changes, *counted], records)


def _record_of(
    configuration: Configuration, key: bytes, value: bytes | None, by: Author, did: str
) -> ChangeRecord | None:
    before = configuration.object(key)
    after = configuration.apply(key, value).object(key)
    there = after or before
    if there is None or before == after:
        return None
    settings = list(_differing(before, after))
    kind, _, name = key.decode().partition(":")
    return ChangeRecord(
        number=0,
        tenant=_owner_of(there, configuration, by),
        by=by,
        kind=kind,
        name=name,
        did=did or _deed(before, after, {each.name for each in settings}),
        before=None if before is None else etag_of(before),
        after=None if after is None else etag_of(after),
        settings=tuple(islice(settings, _SETTINGS_MAX)),
        left_out=max(0, len(settings) - _SETTINGS_MAX),
    )


def _owner_of(item: ConfigObject, configuration: Configuration, by: Author) -> str:
    match item:
        case Destination():
            return configuration.tenant_of(item.stream) or by.tenant
        case Replacement():
            current = configuration.pipelines.get(item.name)
            return current.tenant if current else by.tenant
        case Tenant():
            return item.name
        case _:
            return str(getattr(item, "tenant", by.tenant))


def _deed(before: ConfigObject | None, after: ConfigObject | None, names: set[str]) -> str:
    """Return one word for the change."""
    did = "changed"
    match before, after:
        case Replacement(), Replacement(document=None):
            did = "given up"
        case None | Replacement(document=None), _:
            did = "created"
        case _, None:
            did = "deleted"
        case ApiKey(), ApiKey() if names == {SHOWN_AS["secrets"]}:
            did = "rotated" if len(after.secrets) > 1 else "retired"
        case Destination(), Destination() if names <= _HALTS:
            was_halted = before.is_paused or before.is_disabled
            did = "resumed" if was_halted else "tried now"
            if after.is_paused or after.is_disabled:
                did = "paused" if after.is_paused else "disabled"
    return did


def _differing(before: ConfigObject | None, after: ConfigObject | None) -> Iterator[ChangedSetting]:
    """Yield the settings that differ, by name; for a new object, those not at their defaults."""
    if after is None:
        return
    old = {} if before is None else before.to_fields()
    new = after.to_fields(with_defaults=before is not None)
    known = after.known_fields().keys()
    for name in sorted((old.keys() | new.keys()) - _IDENTITY):
        was, now = old.get(name, UNSET), new.get(name, UNSET)
        if was == now:
            continue
        if name == "secrets":
            was, now = len(old.get(name, ())), len(new[name])
        elif name in known and (name in _LISTS or not isinstance(was or now, list)):
            was, now = _told(was), _told(now)
        else:
            was = now = UNSET
        if was == now:
            # The values differ only in parts that the record does not show.
            was = now = UNSET
        yield ChangedSetting(SHOWN_AS.get(name, name), was, now)


def _told(value: Any) -> Value | UnsetType:
    """Return the value for a record; UNSET if it is long, has parts, or may be secret."""
    match value:
        case float() if value.is_integer():
            # Without a decimal point, as people write whole numbers.
            return int(value)
        case None | bool() | int() | float():
            return value
        case str() if "://" in value:
            return _origin(value)
        case str() if len(value) <= _CHARS_MAX:
            return value
        case list() if len(json.dumps(value)) <= _CHARS_MAX:
            return value
    return UNSET


def _origin(url: str) -> Value | UnsetType:
    """Return the URL without user, path and query, where some people put secrets."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return UNSET
    return f"{parts.scheme}://{parts.hostname}{port}"[:_CHARS_MAX] if parts.hostname else UNSET
