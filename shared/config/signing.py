"""Signs requests according to Standard Webhooks, to prove that they are from Hifi.

A signature is the HMAC-SHA256 of `id.timestamp.body` in Base64. There is one `v1,...` for each
valid secret, so a receiver can change from an old secret to a new one while both are valid.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable

PREFIX = "whsec_"
# The specification's limits.
KEY_BYTES_MIN, KEY_BYTES_MAX = 24, 64


def signing_secret(key: bytes) -> str:
    """Return a secret as its owner sees it, from the caller's random bytes."""
    return PREFIX + base64.b64encode(key).decode()


def signing_key(secret: str) -> bytes:
    """Return the key in a secret; ValueError if the secret is invalid."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(PREFIX) or not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        # The text must not contain the value.
        raise ValueError(
            f"a signing secret is {PREFIX} and {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes in Base64"
        )
    return key


def signatures(keys: Iterable[bytes], *, message_id: str, timestamp_s: str, body: bytes) -> str:
    """Return the value of the `webhook-signature` header."""
    signed = b"%b.%b.%b" % (message_id.encode(), timestamp_s.encode(), body)
    digests = (hmac.new(key, signed, hashlib.sha256).digest() for key in keys)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
