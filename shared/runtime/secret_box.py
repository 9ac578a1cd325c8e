"""Seals secrets with a key that only Hifi's own processes have, and opens them again.

HIFI_SECRET_KEYS has one or more keys, separated by commas: the first one seals, and any of them
opens. To change the key, put a new one in front, let `hifi secrets rotate` seal everything again,
and then remove the old one. A secret is sealed for its owner and does not open in another object's
settings.
"""

import json
from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from shared.config.values import SEALED_PREFIX, Sealed
from shared.runtime.setup_error import SetupError


class SecretUnavailableError(Exception):
    """A secret cannot be opened; the text says why, without revealing the secret."""


class SecretBox:
    """Seals and opens secrets. Without keys both raise an error."""

    def __init__(self, keys: Sequence[str]) -> None:
        try:
            self._fernets = [Fernet(key) for key in keys]
        except ValueError as error:
            raise SetupError(
                "HIFI_SECRET_KEYS contains something that is not a key: `hifi secrets new-key`"
                " prints one; several are separated by commas."
            ) from error

    @classmethod
    def of(cls, listed: str) -> "SecretBox":
        """Make a box with the keys of HIFI_SECRET_KEYS, separated by commas."""
        return cls([key.strip() for key in listed.split(",") if key.strip()])

    @property
    def has_keys(self) -> bool:
        return bool(self._fernets)

    def seal(self, secret: str, *, owner: str) -> Sealed:
        token = self._fernet().encrypt(json.dumps([owner, secret]).encode())
        return SEALED_PREFIX + token.decode()

    def unseal(self, sealed: Sealed, *, owner: str) -> str:
        try:
            text = self._fernet().decrypt(sealed.removeprefix(SEALED_PREFIX).encode())
        except InvalidToken as error:
            raise SecretUnavailableError("none of HIFI_SECRET_KEYS opens the secret") from error
        sealed_for, secret = json.loads(text)
        if sealed_for != owner:
            raise SecretUnavailableError("the secret was sealed for another destination")
        assert isinstance(secret, str), "only texts are sealed"
        return secret

    def sealing_only(self) -> "SecretBox":
        """Return a box that seals and does not open."""
        return _SealingBox(self._fernets)

    def is_newest(self, sealed: Sealed) -> bool:
        """Whether the first key sealed the secret."""
        try:
            self._fernets[0].decrypt(sealed.removeprefix(SEALED_PREFIX).encode())
        except (IndexError, InvalidToken):
            return False
        return True

    def _fernet(self) -> MultiFernet:
        if not self._fernets:
            raise SecretUnavailableError("this process has no HIFI_SECRET_KEYS")
        return MultiFernet(self._fernets)


class _SealingBox(SecretBox):
    def __init__(self, fernets: list[Fernet]) -> None:
        self._fernets = fernets

    def unseal(self, sealed: Sealed, *, owner: str) -> str:  # noqa: ARG002 - as the base class
        raise SecretUnavailableError("this box only seals")


def new_key() -> str:
    """Return a new key for HIFI_SECRET_KEYS."""
    return Fernet.generate_key().decode()
