"""Settings of a destination's credentials, and the places of secrets in settings.

Secrets are only in sealed form here (shared/runtime/secret_box.py seals and opens them), so
settings can be written to the config topic, printed and sent to workers without revealing any.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field
from pydantic.dataclasses import dataclass

from shared.config.model import CONFIG
from shared.config.values import HEADER_CHARS_MAX, PEM_CHARS_MAX, Sealed, WebAddress, check

_Text: TypeAlias = Annotated[str, Field(max_length=HEADER_CHARS_MAX)]
_Username: TypeAlias = Annotated[
    _Text,
    check(
        lambda name: ":" not in name and name.isprintable(),
        "it cannot contain a colon or a line break",
    ),
]


@dataclass(frozen=True, slots=True, config=CONFIG)
class Basic:
    """A user name and a password with each request (RFC 7617)."""

    username: _Username
    password: Sealed
    kind: Literal["basic"] = "basic"


@dataclass(frozen=True, slots=True, config=CONFIG)
class Bearer:
    """A fixed token with each request (RFC 6750)."""

    token: Sealed
    kind: Literal["bearer"] = "bearer"


@dataclass(frozen=True, slots=True, config=CONFIG)
class OAuth2:
    """A token that we fetch ourselves with client credentials (RFC 6749, 4.4)."""

    token_url: WebAddress
    client_id: Annotated[_Text, Field(min_length=1)]
    client_secret: Sealed
    scope: _Text = ""
    kind: Literal["oauth2"] = "oauth2"


@dataclass(frozen=True, slots=True, config=CONFIG)
class ClientCertificate:
    """Our identity in TLS; it can be used together with any other credentials."""

    certificate_pem: Annotated[
        str,
        Field(max_length=PEM_CHARS_MAX),
        check(lambda pem: "-----BEGIN CERTIFICATE-----" in pem, "it holds no certificate in PEM"),
    ]
    key_pem: Sealed


def _is_proxy_address(url: str) -> bool:
    parts = urlsplit(url)
    has_more = bool(parts.query or parts.fragment)
    return parts.username is None and parts.path in {"", "/"} and not has_more


@dataclass(frozen=True, slots=True, config=CONFIG)
class Proxy:
    """An HTTP proxy that opens tunnels (CONNECT), and our sign-in there."""

    url: Annotated[
        WebAddress,
        check(
            _is_proxy_address,
            "it has only scheme, host and port; the sign-in is in username and password",
        ),
    ]
    username: _Username = ""
    password: Sealed | None = None


Auth: TypeAlias = Annotated[Basic | Bearer | OAuth2, Field(discriminator="kind")]

# The names of the secrets in a part; None means that everything in it is a secret.
_SECRETS_IN: Mapping[str, frozenset[str] | None] = {
    "auth": frozenset({"password", "token", "client_secret"}),
    "client_certificate": frozenset({"key_pem"}),
    "proxy": frozenset({"password"}),
    "secret_headers": None,
}


def change_secrets(given: Mapping[str, Any], change: Callable[[str, Any], Any]) -> dict[str, Any]:
    """Return the JSON object of a destination or channel with each secret changed.

    `change` gets the path and the value of each secret. No other code knows where secrets are.
    Members of an unexpected shape stay unchanged, and so do secrets that are null.
    """
    changed = dict(given)
    for part, names in _SECRETS_IN.items():
        if isinstance(inner := changed.get(part), dict):
            changed[part] = inner | {
                name: change(f"{part}.{name}", value)
                for name, value in inner.items()
                if value is not None and (names is None or name in names)
            }
    if isinstance(listed := changed.get("signing_secrets"), list | tuple):
        changed["signing_secrets"] = [
            change(f"signing_secrets.{index}", value) for index, value in enumerate(listed)
        ]
    if (address := changed.get("secret_url")) is not None:
        changed["secret_url"] = change("secret_url", address)
    return changed


def secrets_of(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield path and value of each secret of a destination's or channel's JSON object."""
    secrets: list[tuple[str, Any]] = []
    change_secrets(given, lambda path, value: secrets.append((path, value)))
    yield from secrets
