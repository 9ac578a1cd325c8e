"""Reads a request's options: preferences, keys, whether it is a dry run.

Pure: takes headers and query, returns one frozen value, or raises a Problem that names the fault.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from urllib.parse import parse_qs

from gateway.fleet.idempotency import KEY_LENGTH_MAX
from gateway.intake.events import KEY_BYTES_MAX
from gateway.problems import Problem


@dataclass(frozen=True, slots=True)
class RequestOptions:
    is_strict: bool = False
    is_minimal: bool = False
    is_dry_run: bool = False
    lists_all: bool = False
    idempotency_key: str | None = None
    ordering_key: bytes | None = None

    @property
    def applied(self) -> tuple[tuple[bytes, bytes], ...]:
        """Return the header that lists the applied preferences (RFC 7240)."""
        followed = []
        if self.is_strict:
            followed.append(b"handling=strict")
        if self.is_minimal:
            followed.append(b"return=minimal")
        return ((b"preference-applied", b", ".join(followed)),) if followed else ()


# More than the known fields, and few enough to read cheaply.
_FIELDS_MAX = 20
_NONE = RequestOptions()
_CHOICES: Mapping[str, Mapping[str, bool]] = {
    "dry_run": {"true": True, "": True, "false": False},
    "results": {"all": True, "failed": False},
}
_HEADERS = frozenset({b"prefer", b"idempotency-key", b"x-partition-key"})


def read_options(headers: Mapping[bytes, str], query_string: bytes) -> RequestOptions:
    if not query_string and _HEADERS.isdisjoint(headers):
        return _NONE
    query = read_query(query_string, _CHOICES)
    preferences = _preferences(headers.get(b"prefer", ""))
    return RequestOptions(
        is_strict=preferences.get("handling") == "strict",
        is_minimal=preferences.get("return") == "minimal",
        is_dry_run=_choice(query, "dry_run"),
        lists_all=_choice(query, "results"),
        idempotency_key=_idempotency_key(headers.get(b"idempotency-key")),
        ordering_key=_ordering_key(headers.get(b"x-partition-key")),
    )


def read_query(query_string: bytes, known: Collection[str]) -> dict[str, list[str]]:
    """Return the query's fields; refuse unknown ones, which may be misspelt."""
    try:
        query = parse_qs(
            query_string.decode(),
            keep_blank_values=True,
            max_num_fields=_FIELDS_MAX,
            errors="strict",
        )
    except UnicodeDecodeError as error:
        raise Problem("bad_query", f"The query is not percent-encoded UTF-8: {error}.") from error
    except ValueError as error:
        raise Problem("bad_query", f"The query may have at most {_FIELDS_MAX} fields.") from error
    for name in query:
        if name not in known:
            near = get_close_matches(name[:100], known, n=1)
            meant = f"did you mean {near[0]!r}?" if near else f"known fields are {sorted(known)}."
            raise Problem("bad_query", f"There is no query field {name[:100]!r}: {meant}")
    return query


def _preferences(header: str) -> dict[str, str]:
    """Read known preferences and ignore others, as RFC 7240 asks; the first of a name counts."""
    preferences: dict[str, str] = {}
    for preference in header.split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        preferences.setdefault(name.strip().lower(), value.strip().strip('"').lower())
    return preferences


def _choice(query: Mapping[str, list[str]], name: str) -> bool:
    values, choices = query.get(name), _CHOICES[name]
    if values is None:
        return False
    if len(values) != 1 or values[0] not in choices:
        known = ", ".join(sorted(repr(choice) for choice in choices))
        raise Problem("bad_query", f"The query field {name} must be one of {known}.")
    return choices[values[0]]


def _idempotency_key(header: str | None) -> str | None:
    if header is None:
        return None
    # The draft asks for a quoted string; most senders leave the quotes out.
    key = header.strip()
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not key or len(key) > KEY_LENGTH_MAX or not key.isprintable():
        raise Problem(
            "bad_header", f"Idempotency-Key must have 1 to {KEY_LENGTH_MAX} printable characters."
        )
    return key


def _ordering_key(header: str | None) -> bytes | None:
    if not header:
        return None
    # The server decodes headers as latin-1; this restores the client's bytes.
    key = header.encode("latin-1")
    if len(key) > KEY_BYTES_MAX:
        raise Problem("bad_header", f"X-Partition-Key may have at most {KEY_BYTES_MAX} bytes.")
    return key
