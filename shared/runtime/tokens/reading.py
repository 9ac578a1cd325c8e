"""Verifies JSON Web Tokens, and reads tenant and scopes from them."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import jwt

from shared.config.access import SCOPES
from shared.event.topics import is_name

# Algorithms with a private key of the issuer; a shared secret, or none at all, proves nothing here.
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "ES256", "ES384", "ES512", "EdDSA"]
# The largest difference between well-kept clocks.
LEEWAY_S = 30
# Longer subjects are cut: nobody reads further.
_SUBJECT_CHARS_MAX = 100
# Keys by their ids; None stands for a key without an id.
KeySet: TypeAlias = Mapping[str | None, jwt.PyJWK]


class TokenError(Exception):
    """A token is not valid; the text is a sentence with the reason."""


class UnknownKeyError(TokenError):
    """The key that signed it is not in our key set, which may be out of date."""


@dataclass(frozen=True, slots=True)
class ClaimNames:
    """The names of the claims for tenant and scopes, and the issuer's words for scopes."""

    tenant: str = "tenant"
    scope: str = "scope"
    # The words for the scopes read and admin.
    read: str = "read"
    admin: str = "admin"


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """The holder of a token, with the permissions that it grants."""

    tenant: str
    scopes: frozenset[str]
    subject: str


def read_key_set(text: str | bytes) -> KeySet:
    """Read the keys of a JSON Web Key Set; ValueError if the text is not one."""
    try:
        keys = jwt.PyJWKSet.from_dict(json.loads(text))
    except (ValueError, TypeError, AttributeError, jwt.PyJWTError) as error:
        raise ValueError(str(error)) from error
    return {key.key_id: key for key in keys.keys}


def verify(
    token: str,
    keys: KeySet,
    *,
    issuer: str,
    audiences: Collection[str],
    needs: Collection[str] = (),
) -> dict[str, Any]:
    """Return a token's claims if it is from the issuer and for an audience; else TokenError."""
    try:
        key = keys.get(jwt.get_unverified_header(token).get("kid"))
        if key is None:
            raise UnknownKeyError("The token is not valid: its key is not in the key set.")
        claims: dict[str, Any] = jwt.decode(
            token,
            key=key,
            algorithms=_ALGORITHMS,
            issuer=issuer,
            audience=list(audiences),
            leeway=LEEWAY_S,
            options={"require": ["exp", *needs]},
        )
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise TokenError(f"The token is not valid: {error}.") from error
    return claims


def bearer_of(claims: Mapping[str, Any], names: ClaimNames) -> TokenHolder:
    """Return tenant, scopes and subject of verified claims; TokenError without a tenant."""
    tenant = claims.get(names.tenant)
    if not isinstance(tenant, str) or not is_name(tenant):
        raise TokenError(f"The token's claim {names.tenant} is not the name of a tenant.")
    claim = claims.get(names.scope, "")
    # OAuth's scopes are words in one text; issuers' groups and roles are lists.
    words = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else []
    called = {"write": "write", "read": names.read, "admin": names.admin}
    subject = claims.get("sub")
    return TokenHolder(
        tenant,
        frozenset(scope for scope in SCOPES if called[scope] in words),
        subject[:_SUBJECT_CHARS_MAX] if isinstance(subject, str) else "",
    )
