"""Writes and reads links: their content, and an ed25519 signature that a key's text makes.

The pair of keys follows from the text. The public half is kept beside the text's hash, so readers
of the configuration can check links, and make none.
"""

import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Mapping

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from pydantic import TypeAdapter

from shared.config.access import LINK_LASTS_MS_MAX, LINK_PREFIX, ApiKey, Secret, ViewLink

# Each link of each page contains it.
LINK_CHARS_MAX = 2_000
# Nothing else is in it: a link is written into pages as it came.
_LINK = re.compile(
    rf"(?P<said>{LINK_PREFIX}(?P<says>[A-Za-z0-9_-]+))\.(?P<signature>[A-Za-z0-9_-]+)"
)
_ADAPTER = TypeAdapter(ViewLink)
_NONE = "This is no link of ours, or not all of one."
_GONE = "The key that this link was made with is gone, or was given another secret."
_ENDED = "This link has ended."


class LinkError(Exception):
    """A link shows nothing; the text says why, as a sentence."""

    def __init__(self, says: str, *, origins: Collection[str] = ()) -> None:
        super().__init__(says)
        # Whose pages may show that in a frame.
        self.origins = frozenset(origins)


def link_key_of(key_text: str) -> str:
    """The public half of a key's text, kept to check the links that it makes."""
    return _private_key(key_text).public_key().public_bytes_raw().hex()


def write_link(link: ViewLink, key_text: str) -> str:
    signed = LINK_PREFIX + _as_text(_ADAPTER.dump_json(link))
    return f"{signed}.{_as_text(_private_key(key_text).sign(signed.encode()))}"


def read_link(text: str, keys: Mapping[str, ApiKey], *, now_ms: int) -> ViewLink:
    """Read a link that one of the keys has made and may have made; raise LinkError otherwise."""
    match = _LINK.fullmatch(text)
    if match is None or len(text) > LINK_CHARS_MAX:
        raise LinkError(_NONE)
    try:
        link = _ADAPTER.validate_json(_as_bytes(match["says"]))
        signature = _as_bytes(match["signature"])
    except ValueError as error:
        raise LinkError(_NONE) from error
    key = keys.get(link.key)
    if key is None or not any(
        _is_signed(match["said"], signature, secret) for secret in key.secrets
    ):
        raise LinkError(_GONE)
    left_ms = link.expires_at_ms - now_ms
    if left_ms <= 0 or not key.is_live(now_ms):
        raise LinkError(_ENDED, origins=link.origins)
    # A holder of the key could have signed anything.
    if left_ms > LINK_LASTS_MS_MAX or not link.is_granted_by(key):
        raise LinkError(_NONE)
    return link


def _private_key(key_text: str) -> Ed25519PrivateKey:
    # A key's text has 160 random bits: it needs nothing else to be hard to guess.
    seed = hashlib.sha256(b"hifi link v1:" + key_text.encode()).digest()
    return Ed25519PrivateKey.from_private_bytes(seed)


def _is_signed(said: str, signature: bytes, secret: Secret) -> bool:
    try:
        public_key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(secret.link_key))
        public_key.verify(signature, said.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


def _as_text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _as_bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
