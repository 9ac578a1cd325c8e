"""Verifies JSON Web Tokens, and reads the tenant and scopes out of them."""

import json
from pathlib import Path
from typing import Any

import jwt

from gateway.problems import bad_credential
from gateway.settings import Settings
from shared.config.access import SCOPES
from shared.event.topics import is_name
from shared.runtime.setup_error import SetupError

# Signed with a private key by somebody else; a shared secret or none at all is no proof here.
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "ES256", "ES384", "ES512", "EdDSA"]
# What clocks differ by, at most, where they are looked after.
_LEEWAY_S = 30
TENANT_CLAIM = "tenant"


class TokenReader:
    """Reads tokens that one issuer has signed for one audience."""

    def __init__(self, key_set: Path, settings: Settings) -> None:
        self._issuer, self._audience = settings.jwt_issuer, settings.jwt_audience
        try:
            keys = jwt.PyJWKSet.from_dict(json.loads(key_set.read_text()))
        except (OSError, ValueError, TypeError, jwt.PyJWTError) as error:
            raise SetupError(
                f"{key_set} is not a JSON Web Key Set ({error}): HIFI_GATEWAY_JWT_KEYS_FILE must"
                " name the file with the issuer's public keys."
            ) from error
        self._keys: dict[str | None, Any] = {key.key_id: key for key in keys.keys}

    def read(self, token: str) -> tuple[str, frozenset[str]]:
        """Tenant and scopes; Problem when the token is not to be believed."""
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
            key = self._keys.get(key_id)
            if key is None:
                raise jwt.InvalidKeyError("its key is not in the key set")
            claims = jwt.decode(
                token,
                key=key,
                algorithms=_ALGORITHMS,
                issuer=self._issuer,
                audience=self._audience,
                leeway=_LEEWAY_S,
                options={"require": ["exp"]},
            )
        except (jwt.PyJWTError, ValueError) as error:
            raise bad_credential(f"The token is not valid: {error}.") from error
        tenant = claims.get(TENANT_CLAIM)
        if not isinstance(tenant, str) or not is_name(tenant):
            raise bad_credential(f"The token's claim {TENANT_CLAIM} is not the name of a tenant.")
        scope = claims.get("scope", "")
        granted = frozenset(scope.split()) if isinstance(scope, str) else frozenset()
        return tenant, granted & SCOPES
