"""Settings of a destination: where a stream's events go, and how they get there.

Secrets in it are always sealed, see shared/config/credentials.py.
"""

import re
from dataclasses import field, replace
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field, PlainSerializer, WrapValidator, model_validator
from pydantic.dataclasses import dataclass

from shared.config.credentials import Auth, ClientCertificate, OAuth2, Proxy
from shared.config.model import CONFIG, ConfigError, ConfigObject
from shared.config.selection import ConditionSetting
from shared.config.values import HEADER_CHARS_MAX, MemberPointer, Name, Sealed, WebAddress, check
from shared.event.topics import config_key, destination_id

BodyFormat = Literal["json", "cloudevents", "ndjson", "single"]
Compression = Literal["none", "gzip", "zstd"]
Order = Literal["none", "key", "stream"]
Latency = Literal["micro-batch", "realtime"]

# Two, so that a new signing secret can replace one that receivers still check with.
SIGNING_SECRETS_MAX = 2
_DAY_S = 86_400.0
# Servers accept 8 KiB of headers in all by default (Apache, nginx).
_HEADERS_MAX = 32
# Each is looked up in every event, by workers that destinations share.
_CONDITIONS_MAX, _FIELDS_MAX = 32, 100
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADER_VALUE = re.compile(r"[!-~]([ \t!-~]*[!-~])?")
# These describe the request itself, so only Hifi sets them.
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
# The settings that decide where a request goes, and with which headers and credentials.
_REACHED_BY = (
    *("url", "headers", "secret_headers", "auth", "client_certificate", "signing_secrets"),
    *("proxy", "http2"),
)
_OUR_PREFIXES = ("hifi-", "webhook-", "proxy-")


def _is_ours(header: str) -> bool:
    return header.lower() in _OUR_HEADERS or header.lower().startswith(_OUR_PREFIXES)


def _is_plain(url: str) -> bool:
    return urlsplit(url).scheme == "http"


def _check_start(start: Any, handler: Any) -> Any:
    try:
        return handler(start)
    except ValueError:
        raise ValueError("it must be earliest, latest, or epoch milliseconds") from None


def _check_status(status: Any, handler: Any) -> Any:
    try:
        return handler(status)
    except ValueError:
        raise ConfigError("retry_on", "only statuses from 400 to 499 can be added") from None


_HeaderName: TypeAlias = Annotated[
    str,
    check(_HEADER_NAME.fullmatch, "{!r} is not a header's name"),
    check(lambda name: not _is_ours(name), "this header is set by Hifi"),
]
_OpenHeaderName: TypeAlias = Annotated[
    _HeaderName,
    check(
        lambda name: name.lower() not in {"authorization", "cookie"},
        "put a secret into auth or secret_headers",
    ),
]
_HeaderValue: TypeAlias = Annotated[
    str,
    Field(min_length=1, max_length=2 * HEADER_CHARS_MAX),
    check(HEADER_VALUE.fullmatch, "a header's value is printable ASCII"),
]
_Status: TypeAlias = Annotated[int, Field(ge=400, le=499), WrapValidator(_check_status)]
Start: TypeAlias = Annotated[
    Literal["earliest", "latest"] | Annotated[int, Field(ge=0)], WrapValidator(_check_start)
]
# The maximum number of machines that one destination may need. Each change of leases looks at every
# shard.
SHARDS_MAX = 32
_TimeoutS: TypeAlias = Annotated[float, Field(ge=0.001, le=300)]


@dataclass(frozen=True, slots=True, config=CONFIG)
class Destination(ConfigObject):
    """Where a stream's events go, and how Hifi sends them."""

    stream: Name
    name: Name
    url: WebAddress
    body_format: BodyFormat = "json"
    # Batch receivers accept this much by default: 500 events (Mixpanel), 1 MiB (Event Grid).
    batch_count_max: Annotated[int, Field(ge=1, le=10_000)] = 500
    batch_bytes_max: Annotated[int, Field(ge=1, le=64 * 1_048_576)] = 1_048_576
    # How long events may wait for a batch to fill; 0 sends available events at once.
    linger_s: Annotated[float, Field(ge=0, le=60)] = 0.0
    # Parallel requests, over all machines.
    parallel_max: Annotated[int, Field(ge=1, le=256)] = 4
    # The number of processes that may share its Kafka partitions. It cannot change later, because
    # each Kafka partition must have one sender at a time.
    shards: Annotated[int, Field(ge=1, le=SHARDS_MAX)] = 1
    # Events per second, over all Kafka partitions together.
    rate_per_s: Annotated[float, Field(ge=0.001, le=1e9)] | None = None
    # For the whole exchange, from connecting to the last byte read (Svix: 15 s; spec: 15-30 s).
    timeout_s: _TimeoutS = 15.0
    # For the TCP and TLS handshake; a host that needs longer is down (a lost SYN is resent after
    # 1 s, a second one after 3 s).
    connect_timeout_s: _TimeoutS = 5.0
    compression: Compression = "none"
    headers: Annotated[dict[_OpenHeaderName, _HeaderValue], Field(max_length=_HEADERS_MAX)] = field(
        default_factory=dict
    )
    # Headers with values that nobody may see.
    secret_headers: Annotated[dict[_HeaderName, Sealed], Field(max_length=_HEADERS_MAX)] = field(
        default_factory=dict
    )
    auth: Auth | None = None
    client_certificate: ClientCertificate | None = None
    # Requests go through a tunnel of this proxy; without it, the environment's proxies are ignored.
    proxy: Proxy | None = None
    # Offer HTTP/2; a server without it gets HTTP/1.1.
    http2: bool = False
    signing_secrets: Annotated[tuple[Sealed, ...], Field(max_length=SIGNING_SECRETS_MAX)] = ()
    order: Order = "none"
    # 4xx statuses to retry besides 429; meant for 408 and 425.
    retry_on: Annotated[frozenset[_Status], PlainSerializer(sorted)] = frozenset()
    latency: Latency = "micro-batch"
    # Where in the stream a new destination begins; an int is a time in epoch milliseconds.
    start: Start = "earliest"
    # Events must meet every condition; the others count as delivered, with the outcome `filtered`.
    filter: Annotated[tuple[ConditionSetting, ...], Field(max_length=_CONDITIONS_MAX)] = ()
    # JSON pointers of the members to send; empty sends whole events, byte by byte.
    fields: Annotated[tuple[MemberPointer, ...], Field(max_length=_FIELDS_MAX)] = ()
    is_paused: bool = False
    # While all answers are 401, 403 or 404, hold the events instead of giving them up.
    hold_on_rejects: bool = False
    # After this long without one success the destination is disabled (Svix: 5 days). The maximum is
    # the retention of dead letters.
    disable_after_s: Annotated[float, Field(ge=1, le=30 * _DAY_S)] = 5 * _DAY_S
    is_disabled: bool = False
    # When somebody last resumed it, or changed its address or credentials: anything that held it
    # back before no longer does (shared/flow/resuming.py).
    resumed_at_ms: Annotated[int, Field(ge=0, le=10**15)] = 0

    @model_validator(mode="after")
    def _check_header_names(self) -> "Destination":
        names = [name.lower() for name in (*self.headers, *self.secret_headers)]
        if self.auth is not None:
            names.append("authorization")
        if len(names) != len(set(names)):
            raise ConfigError("headers", "a header is set twice (case is ignored), or also by auth")
        return self

    @model_validator(mode="after")
    def _check_tunnel(self) -> "Destination":
        is_plain = _is_plain(self.url)
        if self.http2 and is_plain:
            raise ConfigError("http2", "it needs an https url")
        if self.proxy is None:
            return self
        asks_in_plain = isinstance(self.auth, OAuth2) and _is_plain(self.auth.token_url)
        if is_plain or asks_in_plain:
            what = "url" if is_plain else "auth.token_url"
            raise ConfigError("proxy", f"it needs an https {what}: a proxy only gets tunnels")
        if self.proxy.password is not None and not self.proxy.username:
            raise ConfigError("proxy.username", "it is missing: a password alone is never sent")
        return self

    @model_validator(mode="after")
    def _check_order(self) -> "Destination":
        if self.order == "stream" and self.latency == "realtime":
            raise ConfigError("latency", "it must be micro-batch when order = stream")
        return self

    @property
    def starts_late(self) -> bool:
        """Whether it skips events that were in the stream before it began."""
        return self.start != "earliest"

    @property
    def shard_names(self) -> list[str]:
        """The names under which its shards are leased."""
        return [self.shard_of(partition) for partition in range(self.shards)]

    def shard_of(self, partition: int) -> str:
        """Return the name under which the shard of a Kafka partition is leased."""
        shard = partition % self.shards
        return f"{self.id}#{shard}" if shard else self.id

    @property
    def requests_at_once_max(self) -> int:
        """The maximum number of parallel requests, over all machines."""
        return 1 if self.order == "stream" else self.parallel_max

    @property
    def request_count_max(self) -> int:
        """The maximum number of events in one request."""
        return 1 if self.body_format == "single" else self.batch_count_max

    def resumed(self, *, at_ms: int) -> "Destination":
        """Return the destination as resumed by a person after a pause, a hold or a disabling."""
        return replace(self, is_paused=False, is_disabled=False).begun_anew(at_ms=at_ms)

    def begun_anew(self, *, at_ms: int) -> "Destination":
        """Make past failures obsolete. The time grows, even if the gateway's clock is slow."""
        return replace(self, resumed_at_ms=max(at_ms, self.resumed_at_ms + 1))

    def begins_anew(self, before: "Destination") -> bool:
        """Whether the change makes its history of successes and failures obsolete."""
        was_halted = before.is_paused or before.is_disabled
        is_let_go = was_halted and not (self.is_paused or self.is_disabled)
        return is_let_go or any(
            getattr(self, name) != getattr(before, name) for name in _REACHED_BY
        )

    @property
    def id(self) -> str:
        return destination_id(self.stream, self.name)

    @property
    def owner(self) -> str:
        return self.id

    @property
    def config_key(self) -> bytes:
        return config_key("destination", self.id)
