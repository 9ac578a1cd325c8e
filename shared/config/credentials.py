"""Decides how we say to a destination who we are, and where in its settings secrets stand.

Secrets are here only as sealed text (shared/runtime/secret_box.py seals and opens): settings can
be written to the config topic, printed and sent to workers without giving anything away.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias

from shared.config.checks import ConfigError, check_text, check_web_address

# How a sealed secret begins; what does not is plain text, and is refused.
SEALED_PREFIX = "sealed:v1:"
Sealed: TypeAlias = str

# As long as a header may get (Apache and nginx take 8 KiB of headers in all without being asked).
_CHARS_MAX = 4096
# A chain of three certificates is 6 KB; a sealed key is a third longer than the key.
_PEM_CHARS_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Basic:
    """A user name and a password with each request (RFC 7617)."""

    username: str
    password: Sealed

    def __post_init__(self) -> None:
        check_text("auth.username", self.username, chars_max=_CHARS_MAX, may_be_empty=True)
        if ":" in self.username or not self.username.isprintable():
            raise ConfigError("auth.username: it cannot hold a colon or a line break")
        check_sealed("auth.password", self.password)


@dataclass(frozen=True, slots=True)
class Bearer:
    """A fixed token with each request (RFC 6750)."""

    token: Sealed

    def __post_init__(self) -> None:
        check_sealed("auth.token", self.token)


@dataclass(frozen=True, slots=True)
class OAuth2:
    """A token that we fetch ourselves with client credentials (RFC 6749, 4.4)."""

    token_url: str
    client_id: str
    client_secret: Sealed
    scope: str = ""

    def __post_init__(self) -> None:
        check_web_address("auth.token_url", self.token_url)
        check_text("auth.client_id", self.client_id, chars_max=_CHARS_MAX)
        check_sealed("auth.client_secret", self.client_secret)
        check_text("auth.scope", self.scope, chars_max=_CHARS_MAX, may_be_empty=True)


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """Who we are in TLS; it may go together with any other way to say so."""

    certificate_pem: str
    key_pem: Sealed

    def __post_init__(self) -> None:
        what = "client_certificate.certificate_pem"
        check_text(what, self.certificate_pem, chars_max=_PEM_CHARS_MAX)
        if "-----BEGIN CERTIFICATE-----" not in self.certificate_pem:
            raise ConfigError(f"{what}: it holds no certificate in PEM")
        check_sealed("client_certificate.key_pem", self.key_pem)


Auth: TypeAlias = Basic | Bearer | OAuth2
_AUTH_KINDS: Mapping[str, type[Basic | Bearer | OAuth2]] = {
    "basic": Basic,
    "bearer": Bearer,
    "oauth2": OAuth2,
}
_KIND_OF = {kind: name for name, kind in _AUTH_KINDS.items()}


# None: all that is in it.
_SECRETS_IN: Mapping[str, frozenset[str] | None] = {
    "auth": frozenset({"password", "token", "client_secret"}),
    "client_certificate": frozenset({"key_pem"}),
    "secret_headers": None,
}


def change_secrets(given: Mapping[str, Any], change: Callable[[str, Any], Any]) -> dict[str, Any]:
    """A destination's JSON object with each secret changed; `change` gets its path and value.

    The only place that knows where secrets are; what is not of the right shape stays as it is.
    """
    changed = dict(given)
    for part, names in _SECRETS_IN.items():
        if isinstance(inner := changed.get(part), dict):
            changed[part] = {
                name: change(f"{part}.{name}", value) if names is None or name in names else value
                for name, value in inner.items()
            }
    if isinstance(listed := changed.get("signing_secrets"), list | tuple):
        changed["signing_secrets"] = [
            change(f"signing_secrets.{nth}", value) for nth, value in enumerate(listed)
        ]
    return changed


def secrets_of(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Path and value of each secret of a destination's JSON object."""
    found: list[tuple[str, Any]] = []
    change_secrets(given, lambda path, value: found.append((path, value)))
    yield from found


def auth_fields(auth: Auth | None) -> dict[str, Any] | None:
    """As a JSON object."""
    return None if auth is None else {"kind": _KIND_OF[type(auth)], **asdict(auth)}


def auth_of(given: object) -> Auth | None:
    if given is None:
        return None
    if not isinstance(given, dict) or given.get("kind") not in tuple(_AUTH_KINDS):
        raise ConfigError(f"auth.kind: it is none of {tuple(_AUTH_KINDS)}")
    rest = {name: value for name, value in given.items() if name != "kind"}
    auth: Auth = _part("auth", _AUTH_KINDS[given["kind"]], rest)
    return auth


def certificate_of(given: object) -> ClientCertificate | None:
    if given is None:
        return None
    certificate: ClientCertificate = _part("client_certificate", ClientCertificate, given)
    return certificate


def _part(what: str, kind: type[Any], given: object) -> Any:
    if not isinstance(given, dict):
        raise ConfigError(f"{what}: it is not an object")
    known = {each.name for each in fields(kind)}
    for name in sorted(set(given) - known):
        raise ConfigError(f"{what}.{name}: there is no such setting; there are {sorted(known)}")
    try:
        return kind(**given)
    except TypeError as error:
        raise ConfigError(f"{what}: {str(error).partition(') ')[2]}") from error


def check_sealed(what: str, secret: object) -> None:
    # Never the value itself in the text: it may be the secret, in plain.
    if type(secret) is not str or not secret.startswith(SEALED_PREFIX):
        raise ConfigError(f"{what}: a secret is kept sealed only")
    check_text(what, secret, chars_max=2 * _PEM_CHARS_MAX)
