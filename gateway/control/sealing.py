"""Seals the secrets in settings, and shows placeholders in their place.

No answer contains a secret. It shows a placeholder, made from the sealed text, instead. A
placeholder that is sent back keeps its secret, so clients can edit the answer of a GET and PUT it.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from hmac import compare_digest
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from gateway.problems import Problem, pointer_to
from shared.config.credentials import change_secrets, secrets_of
from shared.config.destination import HEADER_VALUE, Destination
from shared.config.model import ConfigError
from shared.config.outside.channel import Channel
from shared.config.outside.database import change_passwords, passwords_of
from shared.config.pipeline import Pipeline
from shared.config.signing import signing_key
from shared.config.values import Sealed, is_web_address
from shared.runtime.certificates import CertificateError, check_pair
from shared.runtime.secret_box import SecretBox, SecretUnavailableError

# Enough for a chain of certificates with a large RSA key; other secrets are far shorter.
_SECRET_CHARS_MAX = 32_768
_PLACEHOLDER_HEX = 12
# Settings with secrets: omitting one keeps it, null removes it.
_KEPT_WHEN_LEFT_OUT = (
    *("auth", "client_certificate", "proxy", "secret_headers", "secret_url", "signing_secrets"),
)
# Settings that the server at the address sees or could misuse.
_SENT = ("auth", "client_certificate", "proxy", "secret_headers")
# Secrets that may be empty: passwords. An empty token is a mistake.
_PASSWORDS = ("auth.password", "proxy.password")
# Settings that go into a header unchanged.
_IN_HEADERS = re.compile(r"(auth\.token|secret_headers\..*)")


def shown(item: Destination | Channel) -> dict[str, Any]:
    """Return the settings with placeholders for secrets, as every reader may see them."""
    return change_secrets(item.known_fields(), lambda _, sealed: _shown(sealed))


def sealed_fields(
    given: Mapping[str, Any], *, before: Destination | Channel | None, owner: str, box: SecretBox
) -> dict[str, Any]:
    """Return the settings to store; raise ConfigError or Problem for an invalid secret."""
    stored = dict(secrets_of(before.known_fields())) if before is not None else {}
    fields = _with_left_out(given, shown(before) if before is not None else {})
    _check_pair(fields, stored, box=box, owner=owner)
    placeholders = {(_part(path), _placeholder(sealed)): sealed for path, sealed in stored.items()}
    known = before.known_fields() if before is not None else fields
    moved = {part for part in _SENT if _goes_to(part, fields) != _goes_to(part, known)}

    def seal(path: str, value: Any) -> Sealed:
        if _is_placeholder(value):
            if _part(path) in moved:
                raise Problem(
                    "secret_changed",
                    f"{path} was stored for another address: send the secret itself for this one,"
                    " or null if it needs none.",
                    pointer=pointer_to(path),
                )
            kept = placeholders.get((_part(path), str(value["sealed"])))
            if kept is None:
                raise Problem(
                    "secret_changed",
                    f"{path} is not stored here (any more): read the settings again, or send"
                    " the secret itself.",
                    pointer=pointer_to(path),
                )
            return str(kept)
        _check_secret(path, value)
        same = _same([stored[path]] if path in stored else (), value, owner=owner, box=box)
        return same or _sealed(value, path, owner=owner, box=box)

    return change_secrets(fields, seal)


def shown_document(pipeline: Pipeline) -> dict[str, Any]:
    """Return a pipeline's document with placeholders for passwords, as every reader may see it."""
    return change_passwords(pipeline.known_fields(), lambda _, __, sealed: _shown(sealed))


def sealed_document(
    given: Mapping[str, Any], *, before: Pipeline | None, owner: str, box: SecretBox
) -> dict[str, Any]:
    """Return the document to store, with stored passwords instead of their placeholders.

    Raise ConfigError or Problem for an invalid secret.
    """
    kept: dict[tuple[str, str], Sealed] = {}

    def keep(_: str, url: str, sealed: Sealed) -> Sealed:
        kept[_placeholder(sealed), url] = sealed
        return sealed

    change_passwords({} if before is None else before.known_fields(), keep)

    def seal(path: str, url: str, value: Any) -> Sealed:
        if not _is_placeholder(value):
            _check_secret(path, value)
            there = [sealed for (_, at), sealed in kept.items() if at == url]
            same = _same(there, value, owner=owner, box=box)
            return same or _sealed(value, path, owner=owner, box=box)
        if (known := kept.get((str(value["sealed"]), url))) is None:
            raise Problem(
                "secret_changed",
                f"{path} is not stored here for this address: send the password itself.",
                pointer=pointer_to(path),
            )
        return known

    return change_passwords(given, seal)


Sealing: TypeAlias = Destination | Channel | Pipeline


def secrets_in(item: Sealing) -> list[Sealed]:
    """Return all sealed secrets in an object."""
    if isinstance(item, Pipeline):
        return [*passwords_of(item.to_fields()).values()]
    return [sealed for _, sealed in secrets_of(item.to_fields())]


def anew(item: Sealing, box: SecretBox) -> Sealing:
    """Seal all secrets with the newest key; raise SecretUnavailableError if one does not open."""

    def seal(secret: Sealed) -> Sealed:
        if box.is_newest(secret):
            return secret
        return box.seal(box.unseal(secret, owner=item.owner), owner=item.owner)

    fields = item.to_fields()
    if isinstance(item, Pipeline):
        return Pipeline.of(change_passwords(fields, lambda _, __, secret: seal(secret)))
    return type(item).of(change_secrets(fields, lambda _, secret: seal(secret)))


def _same(kept: Iterable[Sealed], secret: str, *, owner: str, box: SecretBox) -> Sealed | None:
    """Return the stored seal of an equal secret, so that sending it again changes nothing."""
    for sealed in kept:
        try:
            if compare_digest(box.unseal(sealed, owner=owner).encode(), secret.encode()):
                return sealed
        except SecretUnavailableError:
            # The caller seals it again with a current key.
            continue
    return None


def _sealed(secret: str, path: str, *, owner: str, box: SecretBox) -> Sealed:
    try:
        return box.seal(secret, owner=owner)
    except SecretUnavailableError as error:
        raise Problem(
            "secrets_off",
            "Hifi stores only sealed secrets, and this gateway has no key to seal with: its"
            " operator has to set HIFI_SECRET_KEYS (`hifi secrets new-key` makes a key).",
            pointer=pointer_to(path),
        ) from error


def _goes_to(part: str, fields: Mapping[str, Any]) -> tuple[object, ...]:
    """Return scheme, host and port of the addresses that get the secrets of a part."""
    if part == "proxy":
        # The proxy gets only the sign-in for itself: the rest is in the tunnel, encrypted.
        proxy = fields.get("proxy")
        return (_origin(proxy.get("url")) if isinstance(proxy, dict) else None,)
    auth = fields.get("auth")
    token_url = auth.get("token_url") if isinstance(auth, dict) else None
    return _origin(fields.get("url")), _origin(token_url) if token_url else None


def _origin(url: object) -> object:
    try:
        parts = urlsplit(str(url))
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        # A faulty address equals no other, and is refused when the settings are read.
        return url
    return parts.scheme, parts.hostname, port


def _with_left_out(given: Mapping[str, Any], seen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given settings with omitted secrets restored, and without those set to null."""
    fields = {name: seen[name] for name in _KEPT_WHEN_LEFT_OUT if name in seen} | dict(given)
    for name in ("secret_headers", "signing_secrets"):
        if fields.get(name, ...) is None:
            del fields[name]
    # A secret that is omitted within one of these objects stays only if the kind is unchanged.
    for name in ("auth", "client_certificate", "proxy"):
        new, old = fields.get(name), seen.get(name)
        if isinstance(new, dict) and isinstance(old, dict) and new.get("kind") == old.get("kind"):
            secrets = {each: value for each, value in old.items() if _is_placeholder(value)}
            fields[name] = secrets | new
    return fields


def _check_secret(path: str, value: Any) -> None:
    """Refuse a secret that cannot work; later, nobody can check the sealed text."""
    chars_min = 0 if path in _PASSWORDS else 1
    if not isinstance(value, str) or not chars_min <= len(value) <= _SECRET_CHARS_MAX:
        lengths = f"{chars_min} to {_SECRET_CHARS_MAX}"
        raise ConfigError(path, f"it must be a text of {lengths} characters")
    if _IN_HEADERS.fullmatch(path) and not HEADER_VALUE.fullmatch(value):
        raise ConfigError(path, "a header may contain only printable ASCII")
    if path == "secret_url" and not is_web_address(value):
        raise ConfigError(path, "it must be an http or https address with a host")
    if path.startswith("signing_secrets."):
        try:
            signing_key(value)
        except ValueError as error:
            raise ConfigError(path, str(error)) from error


def _check_pair(
    fields: Mapping[str, Any], stored: Mapping[str, Any], *, box: SecretBox, owner: str
) -> None:
    """Check that a new client certificate and its key belong together."""
    given = fields.get("client_certificate")
    if not isinstance(given, dict):
        return
    certificate, key = given.get("certificate_pem"), given.get("key_pem")
    kept = stored.get("client_certificate.key_pem")
    if kept is not None and key == _shown(kept):
        try:
            key = box.unseal(kept, owner=owner)
        except SecretUnavailableError:
            # Delivery cannot open it either, and reports that.
            return
    if isinstance(certificate, str) and isinstance(key, str):
        try:
            check_pair(certificate, key)
        except CertificateError as error:
            raise ConfigError("client_certificate.key_pem", str(error)) from error


def _shown(sealed: Sealed) -> dict[str, str]:
    return {"sealed": _placeholder(sealed)}


def _is_placeholder(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"sealed"}


def _placeholder(sealed: Sealed) -> str:
    return hashlib.sha256(sealed.encode()).hexdigest()[:_PLACEHOLDER_HEX]


def _part(path: str) -> str:
    return path.partition(".")[0]
