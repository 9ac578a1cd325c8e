"""Writes and reads links: their content, and an ed25519 signature made with a key's text.

The key pair is derived from the text. The public half is stored beside the text's hash, so readers
of the configuration can check links but cannot make any.
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

# Every link in every page of the console contains it, so it must be short.
LINK_CHARS_MAX = 2_000
# A link has only these characters, because it is written into pages unchanged.
_LINK = re.compile(
    rf"(?P<said>{LINK_PREFIX}(?P<says>[A-Za-z0-9_-]+))\.(?P<signature>[A-Za-z0-9_-]+)"
)
_ADAPTER = TypeAdapter(ViewLink)
_NONE = "This is not a link of Hifi, or not a complete one."
_GONE = "The key that made this link is gone, or has another secret now."
_ENDED = "This link has expired."


class LinkError(Exception):
    """A link is not valid; the text is a sentence with the reason."""

    def __init__(self, says: str, *, origins: Collection[str] = ()) -> None:
        super().__init__(says)
        # The origins whose pages may show the error in a frame.
        self.origins = frozenset(origins)


def link_key_of(key_text: str) -> str:
    """Return the public half of the key pair of a key's text, which checks its links."""
    return _private_key(key_text).public_key().public_bytes_raw().hex()


def write_link(link: ViewLink, key_text: str) -> str:
    signed = LINK_PREFIX + _as_text(_ADAPTER.dump_json(link))
    return f"{signed}.{_as_text(_private_key(key_text).sign(signed.encode()))}"


def read_link(text: str, keys: Mapping[str, ApiKey], *, now_ms: int) -> ViewLink:
    """Read a link made by one of the keys with its permissions; raise LinkError otherwise."""
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
    # The holder of a key can sign anything, so check its permissions.
    if left_ms > LINK_LASTS_MS_MAX or not link.is_granted_by(key):
        raise LinkError(_NONE)
    return link


def _private_key(key_text: str) -> Ed25519PrivateKey:
    # A key's text has 160 random bits, so a plain hash of it cannot be guessed.
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
