"""Verifies JSON Web Tokens, and reads the tenant and scopes out of them."""

import json
from pathlib import Path
from time import monotonic
from typing import Any

import jwt
import structlog

from gateway.problems import bad_credential
from gateway.settings import Settings
from shared.config.access import SCOPES
from shared.event.topics import is_name
from shared.runtime.setup_error import SetupError

log = structlog.get_logger()

# Signed with a private key by somebody else; a shared secret or none at all is no proof here.
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "ES256", "ES384", "ES512", "EdDSA"]
# What clocks differ by, at most, where they are looked after.
_LEEWAY_S = 30
TENANT_CLAIM = "tenant"
# Of whom it is, as far as anybody reads.
_SUBJECT_CHARS_MAX = 100
# As long as a change of the configuration may take: who rotates keys changes the file alone.
_LOOK_S = 2.0


class TokenReader:
    """Reads tokens that one issuer has signed for one audience."""

    def __init__(self, key_set: Path, settings: Settings) -> None:
        self._issuer, self._audience = settings.jwt_issuer, settings.jwt_audience
        self._file = key_set
        self._read_keys()

    def read(self, token: str) -> tuple[str, frozenset[str], str]:
        """Tenant, scopes and subject; Problem when the token is not to be believed."""
        if monotonic() - self._looked_s >= _LOOK_S:
            self._look()
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
        subject = claims.get("sub")
        name = subject[:_SUBJECT_CHARS_MAX] if isinstance(subject, str) else ""
        return tenant, granted & SCOPES, name

    def _look(self) -> None:
        """Take the keys of a file that was changed; one that is none leaves those that we have."""
        self._looked_s = monotonic()
        try:
            if self._file.stat().st_mtime_ns != self._changed_ns:
                self._read_keys()
        except (OSError, SetupError) as error:
            log.warning("jwt.keys_unreadable", problem=str(error))

    def _read_keys(self) -> None:
        self._looked_s = monotonic()
        try:
            self._changed_ns = self._file.stat().st_mtime_ns
            keys = jwt.PyJWKSet.from_dict(json.loads(self._file.read_text()))
        except (OSError, ValueError, TypeError, jwt.PyJWTError) as error:
            raise SetupError(
                f"{self._file} is not a JSON Web Key Set ({error}): HIFI_GATEWAY_JWT_KEYS_FILE must"
                " name the file with the issuer's public keys."
            ) from error
        self._keys: dict[str | None, Any] = {key.key_id: key for key in keys.keys}
