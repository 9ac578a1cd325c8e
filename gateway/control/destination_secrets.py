"""Seals the secrets in a destination's settings, keeps them, and shows a mark in their place.

A secret goes in once and never comes out. What is shown instead is a mark of the sealed text; sent
back, it keeps the secret it was shown for, so that what GET answers can be changed and PUT.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from gateway.problems import Problem, pointer_to
from shared.config.credentials import change_secrets, secrets_of
from shared.config.destination import HEADER_VALUE, Destination
from shared.config.model import ConfigError
from shared.config.signing import signing_key
from shared.config.values import Sealed
from shared.runtime.certificates import CertificateError, check_pair
from shared.runtime.secret_box import SecretBox, SecretUnavailableError

# A chain of certificates with a large RSA key; everything else is shorter by far.
_SECRET_CHARS_MAX = 32_768
_MARK_HEX = 12
# Settings that hold secrets: who leaves one out means "as it is", who sends null wants it gone.
_KEPT_WHEN_LEFT_OUT = ("auth", "client_certificate", "secret_headers", "signing_secrets")
# Of these, a secret that is left out stays when the rest is of the same kind.
_SECRETS_OF = {"auth": ("password", "token", "client_secret"), "client_certificate": ("key_pem",)}
# What becomes part of a header as it is.
_IN_HEADERS = re.compile(r"(auth\.token|secret_headers\..*)")


def shown(destination: Destination) -> dict[str, Any]:
    """The settings as anybody may see them who may read."""
    return change_secrets(destination.known_fields(), lambda _, sealed: {"sealed": _mark(sealed)})


def sealed_fields(
    given: Mapping[str, Any], *, before: Destination | None, owner: str, box: SecretBox
) -> dict[str, Any]:
    """The settings to keep; ConfigError and Problem say what is wrong with a secret."""
    stored = before.known_fields() if before is not None else {}
    fields = _with_kept(given, stored)
    _check_pair(fields, dict(secrets_of(stored)), box=box, owner=owner)
    marks = {(_part(path), _mark(sealed)): sealed for path, sealed in secrets_of(stored)}
    ours = {sealed for _, sealed in secrets_of(stored)}

    def seal(path: str, value: Any) -> Sealed:
        if isinstance(value, _Kept) and value in ours:
            return str(value)
        if isinstance(value, dict) and set(value) == {"sealed"}:
            kept = marks.get((_part(path), str(value["sealed"])))
            if kept is None:
                raise Problem(
                    "secret_changed",
                    f"{path} is not kept here (any more): read the destination again, or send"
                    " the secret itself.",
                    pointer=pointer_to(path),
                )
            return str(kept)
        _check_secret(path, value)
        try:
            return box.seal(value, owner=owner)
        except SecretUnavailableError as error:
            raise Problem(
                "secrets_off",
                "Secrets are kept sealed only, and this gateway has no key to seal with: whoever"
                " runs it sets HIFI_SECRET_KEYS (`hifi secrets new-key` makes one).",
                pointer=pointer_to(path),
            ) from error

    return change_secrets(fields, seal)


def sealed_anew(destination: Destination, box: SecretBox) -> Destination:
    """With every secret sealed by the newest key; SecretUnavailableError if one does not open."""

    def seal(_: str, secret: Sealed) -> Sealed:
        if box.is_newest(secret):
            return secret
        return box.seal(box.unseal(secret, owner=destination.id), owner=destination.id)

    return Destination.of(change_secrets(destination.to_fields(), seal))


class _Kept(str):
    """A sealed text that we put back ourselves; the same text from outside is none."""

    __slots__ = ()


def _with_kept(given: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with what was left out on purpose, and with nothing for null."""
    kept = change_secrets(stored, lambda _, sealed: _Kept(sealed))
    fields = dict(given)
    for name in _KEPT_WHEN_LEFT_OUT:
        if name not in fields and name in kept:
            fields[name] = kept[name]
        elif fields.get(name, ...) is None and name in {"secret_headers", "signing_secrets"}:
            del fields[name]
    for name, secrets in _SECRETS_OF.items():
        new, old = fields.get(name), kept.get(name)
        if isinstance(new, dict) and isinstance(old, dict) and new.get("kind") == old.get("kind"):
            left_out = {each: old[each] for each in secrets if each in old and each not in new}
            fields[name] = {**new, **left_out}
    return fields


def _check_secret(path: str, value: Any) -> None:
    """In plain text for the last time: whatever could not work at send is refused now."""
    # An empty password is one; an empty token is a mistake.
    chars_min = 0 if path == "auth.password" else 1
    if not isinstance(value, str) or not chars_min <= len(value) <= _SECRET_CHARS_MAX:
        lengths = f"{chars_min} to {_SECRET_CHARS_MAX}"
        raise ConfigError(path, f"it is not a text of {lengths} characters")
    if _IN_HEADERS.fullmatch(path) and not HEADER_VALUE.fullmatch(value):
        raise ConfigError(path, "what goes into a header is printable ASCII")
    if path.startswith("signing_secrets."):
        try:
            signing_key(value)
        except ValueError as error:
            raise ConfigError(path, str(error)) from error


def _check_pair(
    fields: Mapping[str, Any], stored: Mapping[str, Any], *, box: SecretBox, owner: str
) -> None:
    """Whether a client certificate and its key belong together, when either of them is new."""
    given = fields.get("client_certificate")
    if not isinstance(given, dict):
        return
    certificate, key = given.get("certificate_pem"), given.get("key_pem")
    kept = stored.get("client_certificate.key_pem")
    if kept is not None and (isinstance(key, _Kept) or key == {"sealed": _mark(kept)}):
        try:
            key = box.unseal(kept, owner=owner)
        except SecretUnavailableError:
            # Delivery cannot open it either, and says so.
            return
    if isinstance(certificate, str) and isinstance(key, str):
        try:
            check_pair(certificate, key)
        except CertificateError as error:
            raise ConfigError("client_certificate.key_pem", str(error)) from error


def _mark(sealed: Sealed) -> str:
    return hashlib.sha256(sealed.encode()).hexdigest()[:_MARK_HEX]


def _part(path: str) -> str:
    return path.partition(".")[0]
