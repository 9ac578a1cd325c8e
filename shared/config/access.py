"""Decides what an API key is, what it allows, and what a tenant may use; and how keys are written.

A key's text is shown once. What is stored is its hash; of the keys that also sign requests there
is a second, derived key, from which the text cannot be found. The text ends in a checksum, so a
truncated or mistyped key is told from a wrong one without a look at any list.
"""

import hashlib
import hmac
import json
import re
import zlib
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from typing import Literal

from shared.event.topics import is_name, key_config_key, tenant_config_key

Scope = Literal["write", "read", "admin"]
SCOPES: frozenset[str] = frozenset({"write", "read", "admin"})
KeyKind = Literal["secret", "browser"]
# As others mark theirs (Stripe: sk_, pk_), so that scanners for leaked secrets can find ours.
_MARKS: dict[str, KeyKind] = {"sk": "secret", "pk": "browser"}
_MARK_OF = {kind: mark for mark, kind in _MARKS.items()}

DEFAULT_TENANT = "default"
# 160 bits cannot be guessed; a plain hash of so much chance needs no salt and no stretching.
ENTROPY_BYTES = 20
# One that is in use and one that replaces it.
_LIVE_SECRETS_MAX = 2
_TEXT = re.compile(r"(hifi(sk|pk)_([a-z0-9][a-z0-9_-]{0,99})_[0-9a-f]{40})([0-9a-f]{8})")
_HASH = re.compile(r"[0-9a-f]{64}")
# Scheme and host, and a port that is not the scheme's own: what a browser sends as Origin.
_ORIGIN = re.compile(r"https?://[a-z0-9.\-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?")
# Stripe and Svix allow five minutes between two clocks.
SIGNATURE_AGE_MS_MAX = 5 * 60 * 1000


class AccessError(ValueError):
    """A setting of a key or a tenant is wrong; the text names it and says what it takes."""


@dataclass(frozen=True, slots=True)
class KeyText:
    """What can be read off a key's text without knowing any key."""

    kind: KeyKind
    key_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Secret:
    """What is kept of one text: its hash, and for keys that sign, what signatures are made with."""

    hash: str
    signing_key: str = ""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """Who may do what. Up to two texts are good at a time, so that one can replace the other."""

    id: str
    secrets: tuple[Secret, ...]
    tenant: str = DEFAULT_TENANT
    kind: KeyKind = "secret"
    scopes: frozenset[str] = frozenset({"write"})
    # Empty means every stream of the tenant.
    streams: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    expires_at_ms: int | None = None
    # Requests must carry a signature of their body besides the key.
    must_sign: bool = False

    def __post_init__(self) -> None:
        _check(is_name(self.id), "id", self.id, "a name")
        _check(is_name(self.tenant), "tenant", self.tenant, "a name")
        _check(self.kind in _MARKS.values(), "kind", self.kind, "secret or browser")
        _check(self.scopes <= SCOPES and bool(self.scopes), "scopes", set(self.scopes), "scopes")
        _check(all(map(is_name, self.streams)), "streams", set(self.streams), "names of streams")
        are_origins = all(_ORIGIN.fullmatch(origin) for origin in self.origins)
        _check(are_origins, "origins", set(self.origins), "origins such as https://shop.example")
        is_time = self.expires_at_ms is None or type(self.expires_at_ms) is int
        _check(is_time, "expires_at_ms", self.expires_at_ms, "epoch milliseconds")
        _check(type(self.must_sign) is bool, "must_sign", self.must_sign, "true or false")
        _check(1 <= len(self.secrets) <= _LIVE_SECRETS_MAX, "secrets", "(hidden)", "one or two")
        are_hashes = all(_HASH.fullmatch(secret.hash) for secret in self.secrets)
        _check(are_hashes, "secrets", "(hidden)", "hashes")
        if self.kind == "browser":
            # Everybody can read it in the page: it may write from that page and nothing else.
            is_safe = self.scopes == {"write"} and bool(self.origins) and not self.must_sign
            _check(is_safe, "kind", "browser", "a key that only writes, from origins, unsigned")

    @property
    def config_key(self) -> bytes:
        return key_config_key(self.id)

    def is_live(self, now_ms: int) -> bool:
        return self.expires_at_ms is None or now_ms < self.expires_at_ms

    def secret_of(self, shown: KeyText) -> Secret | None:
        """Which of our secrets the text is, if any."""
        if shown.kind != self.kind or shown.key_id != self.id:
            return None
        digest = hash_of(shown.text)
        # The text is long and random: comparing hashes tells an attacker nothing, in any time.
        return next((s for s in self.secrets if hmac.compare_digest(s.hash, digest)), None)

    def with_new(self, secret: Secret) -> "ApiKey":
        """The key with one more text; of the earlier ones the newest stays good."""
        return replace(self, secrets=(*self.secrets[-(_LIVE_SECRETS_MAX - 1) :], secret))

    def with_newest_only(self) -> "ApiKey":
        """The key after a rotation is over."""
        return replace(self, secrets=self.secrets[-1:])

    def to_json(self) -> bytes:
        fields = asdict(self)
        for name in ("scopes", "streams", "origins"):
            fields[name] = sorted(fields[name])
        return json.dumps(fields, sort_keys=True).encode()

    @classmethod
    def of(cls, fields: dict[str, object]) -> "ApiKey":
        """The key of its JSON object; whatever is wrong comes out as a ValueError or TypeError."""
        opened: dict[str, object] = dict(fields)
        for name in ("scopes", "streams", "origins"):
            if name in opened:
                opened[name] = _text_set(name, opened[name])
        secrets = opened.get("secrets", ())
        _check(isinstance(secrets, list), "secrets", "(hidden)", "a list")
        assert isinstance(secrets, list)
        opened["secrets"] = tuple(Secret(**secret) for secret in secrets)
        return cls(**opened)  # type: ignore[arg-type]  # __post_init__ checks each


@dataclass(frozen=True, slots=True)
class Tenant:
    """What the requests of one tenant may use together, on one gateway process. None: no limit."""

    name: str
    requests_per_s: float | None = None
    events_per_s: float | None = None
    bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        _check(is_name(self.name), "name", self.name, "a name")
        for what in ("requests_per_s", "events_per_s", "bytes_per_s"):
            rate = getattr(self, what)
            is_rate = rate is None or (type(rate) in {int, float} and 0 < rate <= 1e12)  # noqa: PLR2004 - a terabyte
            _check(is_rate, what, rate, "a number above 0, or null")

    @property
    def config_key(self) -> bytes:
        return tenant_config_key(self.name)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()


def new_text(*, kind: KeyKind, key_id: str, entropy: bytes) -> str:
    """The text of a new key, from chance that the caller has rolled."""
    assert len(entropy) == ENTROPY_BYTES, "a key needs all of its chance"
    text = f"hifi{_MARK_OF[kind]}_{key_id}_{entropy.hex()}"
    return text + _checksum(text)


def read_text(text: str) -> KeyText | None:
    """What a key's text says of itself; None when it is no key, or not all of one."""
    found = _TEXT.fullmatch(text)
    if found is None or found[4] != _checksum(found[1]):
        return None
    return KeyText(kind=_MARKS[found[2]], key_id=found[3], text=text)


def secret_from(text: str, *, signs: bool) -> Secret:
    """What to keep of a text."""
    return Secret(hash_of(text), signing_key_of(text) if signs else "")


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def signing_key_of(text: str) -> str:
    """What requests are signed with; both sides derive it, so that the text need not be kept."""
    return hmac.new(text.encode(), b"hifi request signature v1", hashlib.sha256).hexdigest()


def signature(signing_key: str, *, timestamp_s: int, body: bytes) -> str:
    """HMAC-SHA256 over `timestamp.body`, in hexadecimal."""
    signed = b"%d." % timestamp_s + body
    return hmac.new(signing_key.encode(), signed, hashlib.sha256).hexdigest()


def is_signed(header: str, *, signing_key: str, body: bytes, now_ms: int) -> bool:
    """Whether `t=SECONDS,v1=HEX` is a fresh signature of the body; several v1 may be given."""
    parts = [part.strip().partition("=") for part in header.split(",")]
    times = [value for name, _, value in parts if name == "t"]
    if len(times) != 1 or not re.fullmatch(r"[0-9]{1,12}", times[0]):
        return False
    timestamp_s = int(times[0])
    if abs(now_ms - timestamp_s * 1000) > SIGNATURE_AGE_MS_MAX:
        return False
    right = signature(signing_key, timestamp_s=timestamp_s, body=body).encode()
    given = (value.encode() for name, _, value in parts if name == "v1")
    return any(hmac.compare_digest(right, value) for value in given)


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _text_set(name: str, values: object) -> AbstractSet[str]:
    is_list = isinstance(values, list) and all(isinstance(value, str) for value in values)
    _check(is_list, name, values, "a list of texts")
    assert isinstance(values, list)
    return frozenset(values)


def _check(is_right: bool, what: str, value: object, wanted: str) -> None:  # noqa: FBT001 - private
    if not is_right:
        raise AccessError(f"{what}: {value!r} is not {wanted}")
