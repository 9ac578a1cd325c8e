"""Decides what a destination can be set to: where a stream's events go, and how they get there.

Secrets are in it as sealed text only, see shared/config/credentials.py.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

from shared.config.checks import (
    ConfigError,
    check_count,
    check_flag,
    check_name,
    check_one_of,
    check_pointer,
    check_range,
    check_text,
    check_web_address,
)
from shared.config.credentials import (
    Auth,
    Basic,
    Bearer,
    ClientCertificate,
    OAuth2,
    Sealed,
    auth_fields,
    auth_of,
    certificate_of,
    check_sealed,
)
from shared.config.selection import Condition
from shared.event.topics import destination_config_key, destination_id

BodyFormat = Literal["json", "cloudevents", "ndjson", "single"]
BODY_FORMATS: tuple[BodyFormat, ...] = ("json", "cloudevents", "ndjson", "single")
Compression = Literal["none", "gzip", "zstd"]
COMPRESSIONS: tuple[Compression, ...] = ("none", "gzip", "zstd")
Order = Literal["none", "key"]
ORDERS: tuple[Order, ...] = ("none", "key")
Latency = Literal["micro-batch", "realtime"]
LATENCIES: tuple[Latency, ...] = ("micro-batch", "realtime")
Start: TypeAlias = Literal["earliest", "latest"] | int

# Two, so that a new signing secret can replace one that receivers still check with.
SIGNING_SECRETS_MAX = 2
_DAY_S = 86_400.0
# Servers take 8 KiB of headers in all without being asked (Apache, nginx).
_HEADERS_MAX, _HEADER_CHARS_MAX = 32, 4096
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[!-~]([ \t!-~]*[!-~])?")
# These say how the request is made, which is for us to say.
_OUR_HEADERS = frozenset(
    [
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "traceparent",
        "transfer-encoding",
        "upgrade",
    ]
)
_OUR_PREFIXES = ("hifi-", "webhook-", "proxy-")


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a stream's events go, and how they are sent there."""

    stream: str
    name: str
    url: str
    body_format: BodyFormat = "json"
    # What batch receivers take without asking: 500 events (Mixpanel), 1 MiB (Event Grid).
    batch_count_max: int = 500
    batch_bytes_max: int = 1_048_576
    # How long events may be held back so that a batch fills; 0 sends what is there.
    linger_s: float = 0.0
    # Requests under way at once, on one machine; each task that sends has one at least.
    parallel_max: int = 4
    # Events per second, over all Kafka partitions together.
    rate_per_s: float | None = None
    # The whole exchange, from connect to the last byte that we read (Svix: 15 s; spec: 15-30 s).
    timeout_s: float = 15.0
    # A TCP and TLS handshake that takes longer is a host that is not there (one lost SYN is resent
    # after 1 s, the second after 3 s).
    connect_timeout_s: float = 5.0
    compression: Compression = "none"
    headers: Mapping[str, str] = field(default_factory=dict)
    # The same, for values that nobody may see.
    secret_headers: Mapping[str, Sealed] = field(default_factory=dict)
    auth: Auth | None = None
    client_certificate: ClientCertificate | None = None
    signing_secrets: tuple[Sealed, ...] = ()
    order: Order = "none"
    # Statuses to try again besides 429 and what is not 4xx; meant for 408 and 425.
    retry_on: frozenset[int] = frozenset()
    latency: Latency = "micro-batch"
    # Where in the stream a new destination begins; an int is a time in epoch milliseconds.
    start: Start = "earliest"
    # An event must meet every condition; the others count as delivered, as `filtered`.
    filter: tuple[Condition, ...] = ()
    # JSON pointers of the members that are sent; empty sends events whole, byte by byte.
    fields: tuple[str, ...] = ()
    is_paused: bool = False
    # When all that comes back is 401, 403 and 404, hold the events instead of giving them up.
    hold_on_rejects: bool = False
    # After so long without one success the destination is disabled (Svix: 5 days).
    disable_after_s: float = 5 * _DAY_S
    is_disabled: bool = False
    # When a person last said to try again; what was held or disabled before that is no longer.
    resumed_at_ms: int = 0

    def __post_init__(self) -> None:
        check_name("stream", self.stream)
        check_name("destination", self.name)
        check_web_address("url", self.url)
        self._check_batches()
        self._check_way()
        self._check_secrets()
        self._check_events()
        check_flag("is_paused", self.is_paused)
        check_flag("is_disabled", self.is_disabled)
        check_flag("hold_on_rejects", self.hold_on_rejects)
        check_count("resumed_at_ms", self.resumed_at_ms, 0, 10**15)
        # No longer than dead letters are kept.
        check_range("disable_after_s", self.disable_after_s, 1, 30 * _DAY_S)

    def resumed(self, *, at_ms: int) -> "Destination":
        """As it is once a person has said to go on, after a pause, a hold or a disabling."""
        return replace(self, is_paused=False, is_disabled=False, resumed_at_ms=at_ms)

    def _check_batches(self) -> None:
        check_one_of("body_format", self.body_format, BODY_FORMATS)
        check_one_of("compression", self.compression, COMPRESSIONS)
        check_count("batch_count_max", self.batch_count_max, 1, 10_000)
        check_count("batch_bytes_max", self.batch_bytes_max, 1, 64 * 1_048_576)
        check_range("linger_s", self.linger_s, 0, 60)
        check_count("parallel_max", self.parallel_max, 1, 256)
        if self.rate_per_s is not None:
            check_range("rate_per_s", self.rate_per_s, 0.001, 1e9)

    def _check_way(self) -> None:
        check_range("timeout_s", self.timeout_s, 0.001, 300)
        check_range("connect_timeout_s", self.connect_timeout_s, 0.001, 300)
        check_one_of("order", self.order, ORDERS)
        check_one_of("latency", self.latency, LATENCIES)
        if type(self.start) is not int:
            check_one_of("start", self.start, ("earliest", "latest"))
        elif self.start < 0:
            raise ConfigError("start: it is earliest, latest, or epoch milliseconds")
        if not all(type(status) is int and 400 <= status <= 499 for status in self.retry_on):  # noqa: PLR2004 - RFC 9110
            raise ConfigError("retry_on: only statuses from 400 to 499 can be added")

    def _check_secrets(self) -> None:
        _check_headers("headers", self.headers)
        _check_headers("secret_headers", self.secret_headers)
        for name, value in self.secret_headers.items():
            check_sealed(f"secret_headers.{name}", value)
        for name in self.headers:
            if name.lower() in {"authorization", "cookie"}:
                raise ConfigError(f"headers.{name}: a secret belongs into auth or secret_headers")
        names = [name.lower() for name in (*self.headers, *self.secret_headers)]
        if self.auth is not None:
            names.append("authorization")
        if len(names) != len(set(names)):
            raise ConfigError("headers: one name is there twice, in any spelling, or as auth")
        if not isinstance(self.auth, Basic | Bearer | OAuth2 | None):
            raise ConfigError(f"auth: {type(self.auth).__name__} is no way to sign in")
        if not isinstance(self.signing_secrets, tuple):
            raise ConfigError("signing_secrets: it is not a list")
        if len(self.signing_secrets) > SIGNING_SECRETS_MAX:
            raise ConfigError(f"signing_secrets: there can be {SIGNING_SECRETS_MAX} at a time")
        for nth, secret in enumerate(self.signing_secrets):
            check_sealed(f"signing_secrets.{nth}", secret)

    def _check_events(self) -> None:
        if not isinstance(self.filter, tuple) or not isinstance(self.fields, tuple):
            raise ConfigError("filter, fields: they are not lists")
        if not all(isinstance(condition, Condition) for condition in self.filter):
            raise ConfigError("filter: it is not a list of conditions")
        for pointer in self.fields:
            check_pointer("fields", pointer)
            if not pointer:
                raise ConfigError("fields: leave them out to send events whole")

    @property
    def id(self) -> str:
        return destination_id(self.stream, self.name)

    @property
    def config_key(self) -> bytes:
        return destination_config_key(self.id)

    def to_fields(self) -> dict[str, Any]:
        """As a JSON object, secrets sealed as they are."""
        certificate = self.client_certificate and asdict(self.client_certificate)
        return {
            **{each.name: getattr(self, each.name) for each in fields(self)},
            "headers": dict(self.headers),
            "secret_headers": dict(self.secret_headers),
            "auth": auth_fields(self.auth),
            "client_certificate": certificate,
            "signing_secrets": list(self.signing_secrets),
            "retry_on": sorted(self.retry_on),
            "filter": [condition.to_fields() for condition in self.filter],
            "fields": list(self.fields),
        }

    def to_json(self) -> bytes:
        return json.dumps(self.to_fields(), sort_keys=True).encode()

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Destination":
        """The destination of its JSON object; what is left out is as on the first day."""
        opened = dict(given)
        unknown = sorted(set(opened) - {each.name for each in fields(cls)})
        if unknown:
            raise ConfigError(f"{unknown[0]}: there is no such setting")
        for name in ("stream", "name", "url"):
            if name not in opened:
                raise ConfigError(f"{name}: it is missing")
        for name, kind in _LISTS.items():
            listed = opened.get(name, [])
            if not isinstance(listed, list):
                raise ConfigError(f"{name}: it is not a list")
            opened[name] = kind(listed)
        opened["auth"] = auth_of(opened.get("auth"))
        opened["client_certificate"] = certificate_of(opened.get("client_certificate"))
        return cls(**opened)


def _conditions(listed: list[Any]) -> tuple[Condition, ...]:
    return tuple(map(Condition.of, listed))


def _statuses(listed: list[Any]) -> frozenset[int]:
    try:
        return frozenset(listed)
    except TypeError as error:
        raise ConfigError("retry_on: only statuses from 400 to 499 can be added") from error


_LISTS: Mapping[str, Callable[[list[Any]], Any]] = {
    "signing_secrets": tuple,
    "retry_on": _statuses,
    "filter": _conditions,
    "fields": tuple,
}


def _check_headers(what: str, headers: object) -> None:
    if not isinstance(headers, Mapping) or len(headers) > _HEADERS_MAX:
        raise ConfigError(f"{what}: it is not an object of at most {_HEADERS_MAX} headers")
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ConfigError(f"{what}: {name!r} is not a header's name")
        if name.lower() in _OUR_HEADERS or name.lower().startswith(_OUR_PREFIXES):
            raise ConfigError(f"{what}.{name}: this header is set by Hifi")
        check_text(f"{what}.{name}", value, chars_max=2 * _HEADER_CHARS_MAX)
        if not _HEADER_VALUE.fullmatch(value):
            raise ConfigError(f"{what}.{name}: a header's value is printable ASCII")
