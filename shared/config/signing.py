"""Signs requests as the Standard Webhooks say, to prove that they are ours.

HMAC-SHA256 over `id.timestamp.body`, in Base64, one `v1,...` for each secret that is valid, so
that a receiver can go over from an old secret to a new one at any time between.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable

PREFIX = "whsec_"
# The specification's bounds: from the security level of SHA-256's half to its block size.
KEY_BYTES_MIN, KEY_BYTES_MAX = 24, 64


def signing_secret(key: bytes) -> str:
    """A secret as its owner sees it, from chance that the caller has rolled."""
    return PREFIX + base64.b64encode(key).decode()


def signing_key(secret: str) -> bytes:
    """The key in a secret; ValueError when it is none."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(PREFIX) or not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        # Never the value itself in the text.
        raise ValueError(
            f"a signing secret is {PREFIX} and {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes in Base64"
        )
    return key


def signatures(keys: Iterable[bytes], *, message_id: str, timestamp_s: str, body: bytes) -> str:
    """The value of `webhook-signature`."""
    signed = b"%b.%b.%b" % (message_id.encode(), timestamp_s.encode(), body)
    digests = (hmac.new(key, signed, hashlib.sha256).digest() for key in keys)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
