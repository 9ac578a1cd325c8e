"""Reads callers' tokens, with the issuer's keys from a file."""

from pathlib import Path
from time import monotonic

import structlog

from gateway.problems import bad_credential
from gateway.settings import Settings
from shared.runtime.setup_error import SetupError
from shared.runtime.tokens.reading import TokenError, TokenHolder, bearer_of, read_key_set, verify

log = structlog.get_logger()

# A new key in the file must apply as soon as a change of the configuration does.
_LOOK_S = 2.0


class TokenReader:
    """Reads tokens of one issuer."""

    def __init__(self, key_set: Path, settings: Settings) -> None:
        self._issuer, self._audiences = settings.jwt_issuer, settings.jwt_audiences
        self._names = settings.claim_names
        self._file = key_set
        self._read_keys()

    def read(self, token: str) -> TokenHolder:
        """Return the holder of the token; refuse an invalid one."""
        if monotonic() - self._looked_s >= _LOOK_S:
            self._look()
        try:
            claims = verify(token, self._keys, issuer=self._issuer, audiences=self._audiences)
            return bearer_of(claims, self._names)
        except TokenError as error:
            raise bad_credential(str(error)) from error

    def _look(self) -> None:
        """Read the keys of a changed file; keep the current keys if it is faulty."""
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
            self._keys = read_key_set(self._file.read_text())
        except (OSError, ValueError) as error:
            raise SetupError(
                f"{self._file} is not a JSON Web Key Set ({error}): HIFI_GATEWAY_JWT_KEYS_FILE must"
                " name the file with the issuer's public keys."
            ) from error
