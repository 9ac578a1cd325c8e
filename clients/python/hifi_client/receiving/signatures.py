"""Checks that a delivery is from Hifi and recent, as Standard Webhooks specifies."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping

from hifi_client.errors import DeliveryError, SetupError

PREFIX = "whsec_"
TOLERANCE_S = 300


class Verifier:
    """Knows the destination's secrets: one, or the new and the old one during a rotation."""

    def __init__(self, secrets: Iterable[str], *, tolerance_s: float = TOLERANCE_S) -> None:
        self._keys = [_key(text) for text in secrets]
        if not self._keys:
            raise SetupError("Give the destination's signing secret (whsec_...).")
        self._tolerance_s = tolerance_s

    def verify(self, headers: Mapping[str, str], body: bytes, *, now_s: float) -> None:
        """Raise DeliveryError unless a recent signature was made with one of the secrets."""
        name, at, signed = (
            headers.get(f"webhook-{each}", "") for each in ("id", "timestamp", "signature")
        )
        if not name or not signed:
            raise DeliveryError(401, "The request is not signed: give the destination a secret.")
        try:
            at_s = int(at)
        except ValueError:
            raise DeliveryError(401, f"webhook-timestamp {at!r:.40} is not a time.") from None
        if abs(now_s - at_s) > self._tolerance_s:
            raise DeliveryError(
                401,
                f"The request was signed {now_s - at_s:+.0f} s ago, but only"
                f" {self._tolerance_s:.0f} s are allowed: is this machine's clock right?",
            )
        content = f"{name}.{at_s}.".encode() + body
        mine = [hmac.new(key, content, hashlib.sha256).digest() for key in self._keys]
        for each in signed.split():
            version, _, text = each.partition(",")
            given = _bytes(text) if version == "v1" else b""
            if any(hmac.compare_digest(given, one) for one in mine):
                return
        raise DeliveryError(401, "No signature was made with a secret that this receiver knows.")


def _key(text: str) -> bytes:
    key = _bytes(text.removeprefix(PREFIX))
    if not key:
        raise SetupError(
            "A signing secret is whsec_ and Base64. `hifi secrets new-signing-secret` makes one."
        )
    return key


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
