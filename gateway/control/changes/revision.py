"""Makes an object's ETag, and finds out from a tag which settings have changed since.

A tag has a short hash of each setting's name and value. So any gateway can find out which settings
differ, and need not keep the object as it was. A tag omits settings at their defaults, so a gateway
of another release with more settings makes the same tag.
"""

import base64
import json
from hashlib import blake2b

from pydantic import BaseModel, Field

from gateway.problems import Problem
from shared.config.model import ConfigObject

_NAME_BYTES, _VALUE_BYTES = 3, 6
# Settings' names in the API where they differ from the stored names.
SHOWN_AS = {"json_schema": "schema", "secrets": "live_texts"}


def etag_of(item: ConfigObject) -> str:
    """Return an object's ETag with its quotes; it is a strong validator (RFC 9110, 8.8.3)."""
    fields = item.to_fields(with_defaults=False)
    hashes = b"".join(
        _hash(name, _NAME_BYTES) + _hash(json.dumps(fields[name], sort_keys=True), _VALUE_BYTES)
        for name in sorted(fields)
    )
    return f'"{base64.urlsafe_b64encode(hashes).decode()}"'


def changed_settings(since: str, item: ConfigObject) -> list[str]:
    """Return the names of the settings that differ from those of a tag."""
    before, now = _hashes(since), _hashes(etag_of(item))
    names = {_hash(name, _NAME_BYTES): name for name in item.to_fields()}
    changed = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    return sorted(SHOWN_AS.get(names[each], names[each]) for each in changed if each in names)


class Preconditions(BaseModel):
    """The caller's conditions on an object before it is changed."""

    if_match: str | None = Field(
        default=None,
        alias="if-match",
        description="Change the object only if it still has one of these ETags.",
    )
    if_none_match: str | None = Field(
        default=None,
        alias="if-none-match",
        description="*: make the object only if there is none yet.",
    )

    def check(self, item: ConfigObject | None) -> None:
        """Refuse the change if the object does not meet the conditions."""
        wanted = None if self.if_match is None else _listed(self.if_match)
        if item is None:
            if wanted is not None:
                raise Problem("changed_meanwhile", "The object does not exist (any more).")
            return
        etag = etag_of(item)
        if "*" in _listed(self.if_none_match or ""):
            changed, detail = [], "There is such an object already."
        elif wanted is not None and not wanted & {etag, "*"}:
            changed = sorted({name for tag in wanted for name in changed_settings(tag, item)})
            listed = ", ".join(changed) or "the object"
            detail = f"Somebody else has changed {listed}: read it again."
        else:
            return
        headers, members = ((b"etag", etag.encode()),), {"changed": changed, "etag": etag}
        raise Problem("changed_meanwhile", detail, headers=headers, members=members)


def _listed(tags: str) -> frozenset[str]:
    return frozenset(tag.strip() for tag in tags.split(","))


def _hash(text: str, size: int) -> bytes:
    return blake2b(text.encode(), digest_size=size).digest()


def _hashes(etag: str) -> dict[bytes, bytes]:
    """Return hash of the name -> hash of the value; empty if the tag is not one of ours."""
    try:
        raw = base64.b64decode(etag.strip('"'), altchars=b"-_", validate=True)
    except ValueError:
        return {}
    size = _NAME_BYTES + _VALUE_BYTES
    pairs = (raw[at : at + size] for at in range(0, len(raw), size))
    return {pair[:_NAME_BYTES]: pair[_NAME_BYTES:] for pair in pairs}
