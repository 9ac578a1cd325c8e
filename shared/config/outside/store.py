"""An operator's settings of a store for archives: a bucket or folder, and the allowed tenants.

Tenants only name a store. They can neither choose the address that Hifi calls nor see the secret.
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
# Stands for all tenants.
ALL_TENANTS = "all"


def _is_store_url(text: str) -> bool:
    parts = urlsplit(text)
    if parts.scheme == "file":
        return not parts.netloc and parts.path.startswith("/") and ".." not in parts.path.split("/")
    return parts.scheme in KINDS and bool(parts.netloc) and not parts.query


def _is_callable(address: str) -> bool:
    """Whether Hifi may call the address: never a cloud's metadata service with its secrets."""
    try:
        return host_class(read_host(urlsplit(address).hostname or "")) != "never"
    except HostError:
        return False


_Url: TypeAlias = Annotated[
    str,
    check(_is_store_url, "{!r} is not file:///FOLDER, s3://BUCKET, gs://BUCKET or az://CONTAINER"),
]


@dataclass(frozen=True, slots=True, config=ConfigDict(**CONFIG, extra="forbid"))
class Store:
    """A place for archives."""

    name: Name
    # If the URL has a path after the bucket, everything is stored below that path.
    url: _Url
    # The address of an S3 server other than Amazon's.
    endpoint: Annotated[WebAddress, check(_is_callable, "Hifi never calls {!r}")] | None = None
    region: Annotated[str, Field(max_length=100)] = ""
    # The id of an S3 key, or the name of an Azure account. Without it Hifi uses the permissions
    # that the cloud has given to the machine.
    access_key: Annotated[str, Field(max_length=1_000)] = ""
    # The secret key; for Google, the JSON of a service account.
    secret_key: Sealed | None = None
    # The tenants that may archive there; `all` stands for all tenants.
    tenants: Names = frozenset({DEFAULT_TENANT})

    @property
    def owner(self) -> str:
        """The owner for whom its secret is sealed."""
        return store_owner(self.name)

    @property
    def kind(self) -> str:
        return urlsplit(self.url).scheme

    @property
    def path(self) -> str:
        """The path in the bucket above everything; for a folder, the folder's path."""
        path = unquote(urlsplit(self.url).path)
        return path if self.kind == "file" else path.strip("/")

    @property
    def bucket(self) -> str:
        return urlsplit(self.url).netloc

    def allows(self, tenant: str) -> bool:
        return not self.tenants.isdisjoint({tenant, ALL_TENANTS})


def store_owner(name: str) -> str:
    """Return a store's owner name, which no destination can have."""
    return f"store:{name}"


_STORE = TypeAdapter(Store)


def store_of(name: str, settings: object) -> Store:
    """Read a store's settings; ConfigError says what is wrong with them."""
    if not isinstance(settings, dict):
        raise ConfigError(name, "a store is a table of settings, with a url")
    try:
        # From JSON, pydantic accepts a list for a set.
        return _STORE.validate_json(json.dumps({**settings, "name": name}, default=str))
    except ValidationError as error:
        fault = config_error(error.errors()[0])
        raise ConfigError(f"{name}.{fault.setting}", fault.wrong) from None
