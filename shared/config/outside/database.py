"""Settings of a pipeline's database: its address, and its tables.

Passwords in it are always sealed, see shared/config/credentials.py.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from shared.config.model import CONFIG, ConfigError
from shared.config.values import Sealed, check

DATABASE = "database"
# One shard for each Kafka partition.
SHARDS_MAX = 256
# Each host's name is resolved when a document is put.
HOSTS_MAX = 32
KEY_MAX = 16
_PART = ConfigDict(**CONFIG, extra="forbid")
_PORTS = {"postgres": 5432, "postgresql": 5432}
_FILE = re.compile(r"sqlite:[a-z0-9][a-z0-9_-]{0,99}")
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}([.][A-Za-z_][A-Za-z0-9_$]{0,62})?")
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

Mode = Literal["upsert", "insert"]
Tls = Literal["verify", "require", "off"]


def _is_address(text: str) -> bool:
    if _FILE.fullmatch(text):
        return True
    if not text.isprintable() or " " in text:
        return False
    try:
        url = urlsplit(text)
        parts = bool(url.hostname and url.username and url.path.strip("/")) and url.port != 0
    except ValueError:
        return False
    is_plain = not (url.query or url.fragment or "/" in url.path.strip("/"))
    return url.scheme in _PORTS and parts and is_plain


DatabaseAddress: TypeAlias = Annotated[
    str,
    check(
        lambda text: urlsplit(text).password is None if "@" in text else True,
        "put the password into `password`, where it is sealed",
    ),
    check(_is_address, "{!r} is not an address such as postgres://USER@HOST:5432/DATABASE"),
    Field(max_length=1_000),
]
_Table: TypeAlias = Annotated[
    str, check(_TABLE.fullmatch, "{!r} is not a table's name, such as sales or shop.sales")
]
_KeyColumn: TypeAlias = Annotated[
    str, check(_COLUMN.fullmatch, "{!r} cannot name a column of a key")
]


@dataclass(frozen=True, slots=True, config=_PART)
class Shard:
    """The table for events of one Kafka partition; omitted settings are those of the output."""

    url: DatabaseAddress | None = None
    password: Sealed | None = None
    table: _Table | None = None


@dataclass(frozen=True, slots=True, config=_PART)
class DatabaseTable:
    """A table for a pipeline's rows, or one table for each Kafka partition."""

    url: DatabaseAddress
    table: _Table
    password: Sealed | None = None
    # With verify, the server proves its name with a certificate that Hifi's machines trust.
    tls: Tls = "verify"
    # The columns that identify a row; empty for a table with inserts only.
    key: Annotated[tuple[_KeyColumn, ...], Field(max_length=KEY_MAX, strict=False)] = ()
    mode: Mode = "upsert"
    # Events per second, over all Kafka partitions together.
    rate_per_s: Annotated[float, Field(ge=0.001, le=1e9)] | None = None
    shards: Annotated[tuple[Shard, ...], Field(max_length=SHARDS_MAX, strict=False)] = ()

    @model_validator(mode="after")
    def _check_whole(self) -> "DatabaseTable":
        if self.mode == "upsert" and not self.key:
            wrong = "name the columns that identify a row, or set `mode: insert`"
            raise ConfigError("to.0.database.key", wrong)
        if self.mode == "insert" and self.key:
            raise ConfigError("to.0.database.key", "`mode: insert` takes no key")
        if len(set(self.key)) < len(self.key):
            raise ConfigError("to.0.database.key", "a column is listed twice")
        places = [(shard.url or self.url, shard.table or self.table) for shard in self.shards]
        if len(set(places)) < len(places):
            wrong = "two shards have the same table: each Kafka partition needs its own"
            raise ConfigError("to.0.database.shards", wrong)
        return self

    def shard(self, partition: int) -> "TableAddress":
        """Return the table for a Kafka partition's events; KeyError if it has no shard."""
        if not self.shards:
            return TableAddress(self.url, self.password, self.table)
        if partition >= len(self.shards):
            raise KeyError(partition)
        shard = self.shards[partition]
        # A password must not go to another address than its own.
        password = self.password if shard.url in {None, self.url} else None
        return TableAddress(
            shard.url or self.url, shard.password or password, shard.table or self.table
        )


@dataclass(frozen=True, slots=True)
class TableAddress:
    """A database's table, as a document names it."""

    url: str
    password: Sealed | None
    table: str

    @property
    def file(self) -> str | None:
        """The name of an SQLite file; None for a server."""
        return self.url.partition(":")[2] if _FILE.fullmatch(self.url) else None

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        url = urlsplit(self.url)
        return url.port or _PORTS[url.scheme]

    @property
    def user(self) -> str:
        return unquote(urlsplit(self.url).username or "")

    @property
    def database(self) -> str:
        return unquote(urlsplit(self.url).path.strip("/"))


def change_passwords(
    fields: Mapping[str, Any], change: Callable[[str, str, Any], Any]
) -> dict[str, Any]:
    """Return a pipeline's JSON object with each password changed.

    `change` gets a password's path, its address and its value. Members of an unexpected shape stay
    unchanged.
    """
    changed = dict(fields)
    outputs = changed.get("to")
    if not isinstance(outputs, list | tuple):
        return changed
    changed["to"] = [
        {**output, DATABASE: _changed(output[DATABASE], f"to.{index}.{DATABASE}", change)}
        if isinstance(output, dict) and isinstance(output.get(DATABASE), dict)
        else output
        for index, output in enumerate(outputs)
    ]
    return changed


def passwords_of(fields: Mapping[str, Any]) -> dict[str, Sealed]:
    """Return the sealed passwords in a pipeline's JSON object, by path."""
    passwords: dict[str, Sealed] = {}

    def keep(path: str, _: str, sealed: Sealed) -> Sealed:
        passwords[path] = sealed
        return sealed

    change_passwords(fields, keep)
    return passwords


def _changed(
    table: Mapping[str, Any], path: str, change: Callable[[str, str, Any], Any]
) -> dict[str, Any]:
    changed, url = dict(table), str(table.get("url"))
    if changed.get("password") is not None:
        changed["password"] = change(f"{path}.password", url, changed["password"])
    if isinstance(shards := changed.get("shards"), list | tuple):
        changed["shards"] = [
            {
                **shard,
                "password": change(
                    f"{path}.shards.{index}.password",
                    str(shard.get("url") or url),
                    shard["password"],
                ),
            }
            if isinstance(shard, dict) and shard.get("password") is not None
            else shard
            for index, shard in enumerate(shards)
        ]
    return changed
