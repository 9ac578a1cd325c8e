"""Settings of API keys, links and tenants: their permissions, and the format of a key's text.

A key's text is shown once. Hifi stores its hash; for keys that also sign requests it stores a
second, derived key, which does not reveal the text. The text ends in a checksum, so a truncated or
mistyped key is recognized without looking up any stored key.
"""

import hashlib
import hmac
import re
import zlib
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, PlainSerializer, model_validator
from pydantic.dataclasses import dataclass as config_dataclass

from shared.config.model import CONFIG, ConfigError, ConfigObject
from shared.config.values import FunctionName, Name, Names, check
from shared.event.times import DAY_MS
from shared.event.topics import config_key

Scope = Literal["write", "read", "admin"]
SCOPES: frozenset[Scope] = frozenset({"write", "read", "admin"})
KeyKind = Literal["secret", "browser"]
# Prefixes like Stripe's sk_ and pk_: scanners for leaked secrets can find our keys by them.
_PREFIXES: dict[str, KeyKind] = {"sk": "secret", "pk": "browser"}
_PREFIX_OF = {kind: prefix for prefix, kind in _PREFIXES.items()}

DEFAULT_TENANT = "default"
# 160 random bits cannot be guessed, so a plain hash without salt or stretching is enough.
ENTROPY_BYTES = 20
# A secret in use and its replacement.
_LIVE_SECRETS_MAX = 2
_TEXT = re.compile(r"(hifi(sk|pk)_([a-z0-9][a-z0-9_-]{0,99})_[0-9a-f]{40})([0-9a-f]{8})")
# An Origin header as browsers send it: scheme, host, and the port if it is not the default one.
_ORIGIN = re.compile(r"https?://[a-z0-9.\-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?")
# Stripe and Svix allow five minutes between two clocks.
SIGNATURE_AGE_MS_MAX = 5 * 60 * 1000
# The prefix of links: scanners for leaked secrets find them, and nobody mistakes them for keys.
LINK_PREFIX = "hifilk_"
LINK_LASTS_MS_MAX = DAY_MS


_Origin: TypeAlias = Annotated[
    str, check(_ORIGIN.fullmatch, "{!r} is not an origin such as https://shop.example")
]
# At most a terabyte a second.
_Rate: TypeAlias = Annotated[float, Field(gt=0, le=1e12)]
# 0 is a valid limit; Kafka's own limit is about a million partitions.
_Most: TypeAlias = Annotated[int, Field(ge=0, le=1_000_000)]
_ManyBytes: TypeAlias = Annotated[int, Field(ge=0, le=1_000_000_000_000_000)]


@dataclass(frozen=True, slots=True)
class KeyText:
    """The parts of a key's text that are readable without knowing any key."""

    kind: KeyKind
    key_id: str
    text: str


@config_dataclass(frozen=True, slots=True, config=CONFIG)
class Secret:
    """The stored parts of a key's text: its hash, and the signing key of a key that signs."""

    hash: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    signing_key: str = ""
    # Verifies links made with the text; it cannot make links.
    link_key: str = ""

    @property
    def fingerprint(self) -> str:
        """The name in records of its use: 64 bits distinguish billions of texts."""
        return self.hash[:16]


def is_within(streams: frozenset[str], granted: frozenset[str]) -> bool:
    """Whether these streams are granted; an empty set means every stream of the tenant."""
    return not granted or frozenset() < streams <= granted


@config_dataclass(frozen=True, slots=True, config=CONFIG)
class ApiKey(ConfigObject):
    """A key and its permissions. Two texts can be valid at a time, so one can replace the other."""

    id: Name
    secrets: Annotated[tuple[Secret, ...], Field(min_length=1, max_length=_LIVE_SECRETS_MAX)]
    tenant: Name = DEFAULT_TENANT
    kind: KeyKind = "secret"
    scopes: Annotated[frozenset[Scope], Field(min_length=1), PlainSerializer(sorted)] = frozenset(
        {"write"}
    )
    # Empty means every stream of the tenant.
    streams: Names = frozenset()
    origins: Annotated[frozenset[_Origin], PlainSerializer(sorted)] = frozenset()
    expires_at_ms: int | None = None
    # Requests must carry a signature of their body besides the key.
    must_sign: bool = False

    @model_validator(mode="after")
    def _check_browser(self) -> "ApiKey":
        if self.kind == "browser" and (
            # Anybody can read the key in the page, so it may do nothing but write from that page.
            self.scopes != {"write"} or not self.origins or self.must_sign
        ):
            raise ConfigError("kind", "a browser key may only write, has origins, and never signs")
        return self

    @property
    def config_key(self) -> bytes:
        return config_key("key", self.id)

    def is_live(self, now_ms: int) -> bool:
        return self.expires_at_ms is None or now_ms < self.expires_at_ms

    def secret_of(self, shown: KeyText) -> Secret | None:
        """Return this key's secret with the given text, or None."""
        if shown.kind != self.kind or shown.key_id != self.id:
            return None
        digest = hash_of(shown.text)
        # The text is long and random, so comparing hashes tells an attacker nothing.
        return next((s for s in self.secrets if hmac.compare_digest(s.hash, digest)), None)

    def with_new(self, secret: Secret) -> "ApiKey":
        """Return the key with one more text; only the newest earlier text stays valid."""
        return replace(self, secrets=(*self.secrets[-(_LIVE_SECRETS_MAX - 1) :], secret))

    def with_newest_only(self) -> "ApiKey":
        """Return the key after a finished rotation."""
        return replace(self, secrets=self.secrets[-1:])


@config_dataclass(frozen=True, slots=True, config=CONFIG)
class ViewLink:
    """A read-only link to the view of a key with the scope read, until it expires."""

    # The id of the key that made it.
    key: Name
    tenant: Name
    expires_at_ms: int
    # Empty means every stream of the tenant.
    streams: Names = frozenset()
    # The origins whose pages may show it in a frame.
    origins: Annotated[frozenset[_Origin], PlainSerializer(sorted)] = frozenset()

    def is_granted_by(self, key: ApiKey) -> bool:
        """Whether the key may share everything that the link shows."""
        if "admin" not in key.scopes or key.tenant not in {self.tenant, DEFAULT_TENANT}:
            return False
        is_whole = not key.streams
        return is_whole or (key.tenant == self.tenant and is_within(self.streams, key.streams))


@config_dataclass(frozen=True, slots=True, config=CONFIG)
class Tenant(ConfigObject):
    """The limits of one tenant.

    Rates apply to all gateways together; an omitted rate means no limit. The other limits are for
    resources that all tenants share in Kafka and in every process; the gateway has their defaults.
    """

    name: Name
    requests_per_s: _Rate | None = None
    events_per_s: _Rate | None = None
    bytes_per_s: _Rate | None = None
    streams_max: _Most | None = None
    partitions_max: _Most | None = None
    destinations_max: _Most | None = None
    pipelines_max: _Most | None = None
    tables_max: _Most | None = None
    table_bytes_max: _ManyBytes | None = None
    channels_max: _Most | None = None
    keys_max: _Most | None = None
    # The operator's functions that its pipelines may call.
    functions: Annotated[tuple[FunctionName, ...], Field(max_length=100)] = ()

    @property
    def config_key(self) -> bytes:
        return config_key("tenant", self.name)

    @property
    def rates(self) -> dict[str, float]:
        """Its quotas per second, by resource."""
        rates = {
            "requests": self.requests_per_s,
            "events": self.events_per_s,
            "bytes": self.bytes_per_s,
        }
        return {name: rate for name, rate in rates.items() if rate is not None}


def new_text(*, kind: KeyKind, key_id: str, entropy: bytes) -> str:
    """Return the text of a new key, from the caller's random bytes."""
    assert len(entropy) == ENTROPY_BYTES, "a key needs all its random bytes"
    text = f"hifi{_PREFIX_OF[kind]}_{key_id}_{entropy.hex()}"
    return text + _checksum(text)


def read_text(text: str) -> KeyText | None:
    """Parse a key's text; return None if it is not a complete key."""
    match = _TEXT.fullmatch(text)
    if match is None or match[4] != _checksum(match[1]):
        return None
    return KeyText(kind=_PREFIXES[match[2]], key_id=match[3], text=text)


def secret_from(text: str, *, signs: bool) -> Secret:
    """Return the parts of a text to store."""
    return Secret(hash_of(text), signing_key_of(text) if signs else "")


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def signing_key_of(text: str) -> str:
    """Return the key for signing requests; both sides derive it, so the text need not be stored."""
    return hmac.new(text.encode(), b"hifi request signature v1", hashlib.sha256).hexdigest()


def signature(signing_key: str, *, timestamp_s: int, body: bytes) -> str:
    """Return the HMAC-SHA256 of `timestamp.body` in hexadecimal."""
    signed = b"%d." % timestamp_s + body
    return hmac.new(signing_key.encode(), signed, hashlib.sha256).hexdigest()


def is_signed(header: str, *, signing_key: str, body: bytes, now_ms: int) -> bool:
    """Whether `t=SECONDS,v1=HEX` is a fresh signature of the body; it may have several v1 parts."""
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
