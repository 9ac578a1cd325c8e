"""An operator's settings of a place for archives: a bucket or a folder, and who may use it.

Tenants name a store and nothing else of it: no address of theirs is ever called, and no secret of
it is theirs to see.
"""

import json
from typing import Annotated, TypeAlias
from urllib.parse import unquote, urlsplit

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from shared.config.access import DEFAULT_TENANT
from shared.config.addresses import HostError, host_class, read_host
from shared.config.model import CONFIG, ConfigError, config_error
from shared.config.values import Name, Names, Sealed, WebAddress, check

# A folder, or a bucket of one of three kinds.
KINDS = ("file", "s3", "gs", "az")
# Stands for every tenant there is.
ALL_TENANTS = "all"


def _is_store_url(text: str) -> bool:
    parts = urlsplit(text)
    if parts.scheme == "file":
        return not parts.netloc and parts.path.startswith("/") and ".." not in parts.path.split("/")
    return parts.scheme in KINDS and bool(parts.netloc) and not parts.query


def _is_callable(address: str) -> bool:
    """Addresses at which clouds tell machines their secrets are never called."""
    try:
        return host_class(read_host(urlsplit(address).hostname or "")) != "never"
    except HostError:
        return False


_Url: TypeAlias = Annotated[
    str,
    check(
        _is_store_url, "{!r} is none of file:///FOLDER, s3://BUCKET, gs://BUCKET and az://CONTAINER"
    ),
]


@dataclass(frozen=True, slots=True, config=ConfigDict(**CONFIG, extra="forbid"))
class Store:
    """Where archives are kept."""

    name: Name
    # With a path after the bucket, everything lies below that path.
    url: _Url
    # For a server that speaks S3 and is not Amazon's.
    endpoint: Annotated[WebAddress, check(_is_callable, "{!r} is no address to call")] | None = None
    region: Annotated[str, Field(max_length=100)] = ""
    # The id of an S3 key, or the name of an Azure account. Without it the process's own rights
    # count, as clouds give them to machines.
    access_key: Annotated[str, Field(max_length=1_000)] = ""
    # The key itself; for Google, the JSON of a service account.
    secret_key: Sealed | None = None
    # The tenants that may archive there; `all` stands for everybody.
    tenants: Names = frozenset({DEFAULT_TENANT})

    @property
    def owner(self) -> str:
        """The owner that its secret is sealed for."""
        return store_owner(self.name)

    @property
    def kind(self) -> str:
        return urlsplit(self.url).scheme

    @property
    def path(self) -> str:
        """The path that everything lies below; for a folder, that folder."""
        path = unquote(urlsplit(self.url).path)
        return path if self.kind == "file" else path.strip("/")

    @property
    def bucket(self) -> str:
        return urlsplit(self.url).netloc

    def allows(self, tenant: str) -> bool:
        return not self.tenants.isdisjoint({tenant, ALL_TENANTS})


def store_owner(name: str) -> str:
    """No destination is called so."""
    return f"store:{name}"


_STORE = TypeAdapter(Store)


def store_of(name: str, settings: object) -> Store:
    """The store of this name; ConfigError says what is wrong with it."""
    if not isinstance(settings, dict):
        raise ConfigError(name, "a store is a table of settings, with a url")
    try:
        # As JSON, where a list is right for a set.
        return _STORE.validate_json(json.dumps({**settings, "name": name}, default=str))
    except ValidationError as error:
        fault = config_error(error.errors()[0])
        raise ConfigError(f"{name}.{fault.setting}", fault.wrong) from None
