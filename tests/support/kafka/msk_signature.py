"""Computes the signature of a login to Amazon MSK by AWS' documented steps, without their SDK."""

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import quote

SIGNATURE = "X-Amz-Signature"
_ALGORITHM = "AWS4-HMAC-SHA256"


def signature_of(
    query: Mapping[str, str],
    *,
    host: str,
    secret: str,
    path: str = "/",
    payload: str = hashlib.sha256(b"").hexdigest(),
) -> str:
    """Return the signature of a GET whose parameters are in the address (Version 4)."""
    pairs = sorted((_escaped(name), _escaped(value)) for name, value in query.items())
    parameters = "&".join(f"{name}={value}" for name, value in pairs if name != SIGNATURE)
    request = "\n".join(["GET", path, parameters, f"host:{host}", "", "host", payload])
    scope = query["X-Amz-Credential"].partition("/")[2]
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join([_ALGORITHM, query["X-Amz-Date"], scope, digest])
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


def _escaped(text: str) -> str:
    return quote(text, safe="-_.~")
