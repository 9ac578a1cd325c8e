"""Settings of a destination: where a stream's events go, and how they get there.

Secrets are in it as sealed text only, see shared/config/credentials.py.
"""

import re
from dataclasses import field, replace
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, PlainSerializer, WrapValidator, model_validator
from pydantic.dataclasses import dataclass

from shared.config.credentials import Auth, ClientCertificate
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
# Servers take 8 KiB of headers in all without being asked (Apache, nginx).
_HEADERS_MAX = 32
# Each is looked for in each event, in a worker that others share.
_CONDITIONS_MAX, _FIELDS_MAX = 32, 100
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADER_VALUE = re.compile(r"[!-~]([ \t!-~]*[!-~])?")
# These describe how the request is made: only Hifi sets them.
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
# The settings that decide where a request goes, and what it shows there.
_REACHED_BY = ("url", "headers", "secret_headers", "auth", "client_certificate", "signing_secrets")
_OUR_PREFIXES = ("hifi-", "webhook-", "proxy-")


def _is_ours(header: str) -> bool:
    return header.lower() in _OUR_HEADERS or header.lower().startswith(_OUR_PREFIXES)


def _check_start(start: Any, handler: Any) -> Any:
    try:
        return handler(start)
    except ValueError:
        raise ValueError("it is earliest, latest, or epoch milliseconds") from None


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
        "a secret belongs into auth or secret_headers",
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
# The most machines that one destination may need; each is looked up at each change of leases.
SHARDS_MAX = 32
_TimeoutS: TypeAlias = Annotated[float, Field(ge=0.001, le=300)]


@dataclass(frozen=True, slots=True, config=CONFIG)
class Destination(ConfigObject):
    """Where a stream's events go, and how they are sent there."""

    stream: Name
    name: Name
    url: WebAddress
    body_format: BodyFormat = "json"
    # Batch receivers take this much without asking: 500 events (Mixpanel), 1 MiB (Event Grid).
    batch_count_max: Annotated[int, Field(ge=1, le=10_000)] = 500
    batch_bytes_max: Annotated[int, Field(ge=1, le=64 * 1_048_576)] = 1_048_576
    # How long events may be held back so that a batch fills; 0 sends what is there.
    linger_s: Annotated[float, Field(ge=0, le=60)] = 0.0
    # Requests under way at once, over all machines.
    parallel_max: Annotated[int, Field(ge=1, le=256)] = 4
    # The number of processes that its Kafka partitions may be spread over. It stays for good, as
    # one process at a time has to be the sender for each of them.
    shards: Annotated[int, Field(ge=1, le=SHARDS_MAX)] = 1
    # Events per second, over all Kafka partitions together.
    rate_per_s: Annotated[float, Field(ge=0.001, le=1e9)] | None = None
    # The whole exchange, from connect to the last byte that we read (Svix: 15 s; spec: 15-30 s).
    timeout_s: _TimeoutS = 15.0
    # A TCP and TLS handshake that takes longer is a host that is not there (one lost SYN is resent
    # after 1 s, the second after 3 s).
    connect_timeout_s: _TimeoutS = 5.0
    compression: Compression = "none"
    headers: Annotated[dict[_OpenHeaderName, _HeaderValue], Field(max_length=_HEADERS_MAX)] = field(
        default_factory=dict
    )
    # The same, for values that nobody may see.
    secret_headers: Annotated[dict[_HeaderName, Sealed], Field(max_length=_HEADERS_MAX)] = field(
        default_factory=dict
    )
    auth: Auth | None = None
    client_certificate: ClientCertificate | None = None
    signing_secrets: Annotated[tuple[Sealed, ...], Field(max_length=SIGNING_SECRETS_MAX)] = ()
    order: Order = "none"
    # Statuses to try again besides 429 and what is not 4xx; meant for 408 and 425.
    retry_on: Annotated[frozenset[_Status], PlainSerializer(sorted)] = frozenset()
    latency: Latency = "micro-batch"
    # Where in the stream a new destination begins; an int is a time in epoch milliseconds.
    start: Start = "earliest"
    # An event must meet every condition; the others count as delivered, as `filtered`.
    filter: Annotated[tuple[ConditionSetting, ...], Field(max_length=_CONDITIONS_MAX)] = ()
    # JSON pointers of the members that are sent; empty sends events whole, byte by byte.
    fields: Annotated[tuple[MemberPointer, ...], Field(max_length=_FIELDS_MAX)] = ()
    is_paused: bool = False
    # When all that comes back is 401, 403 and 404, hold the events instead of giving them up.
    hold_on_rejects: bool = False
    # After this long without one success the destination is disabled (Svix: 5 days); no longer than
    # dead letters are kept.
    disable_after_s: Annotated[float, Field(ge=1, le=30 * _DAY_S)] = 5 * _DAY_S
    is_disabled: bool = False
    # When a person last said to try now, or changed where and with what it is reached: anything
    # that held it back before no longer does (shared/flow/resuming.py).
    resumed_at_ms: Annotated[int, Field(ge=0, le=10**15)] = 0

    @model_validator(mode="after")
    def _check_header_names(self) -> "Destination":
        names = [name.lower() for name in (*self.headers, *self.secret_headers)]
        if self.auth is not None:
            names.append("authorization")
        if len(names) != len(set(names)):
            raise ConfigError("headers", "one name is there twice, in any spelling, or as auth")
        return self

    @model_validator(mode="after")
    def _check_order(self) -> "Destination":
        if self.order == "stream" and self.latency == "realtime":
            raise ConfigError("latency", "with order = stream it can only be micro-batch")
        return self

    @property
    def starts_late(self) -> bool:
        """Whether it owes none of the events that were in the stream before it began."""
        return self.start != "earliest"

    @property
    def shard_names(self) -> list[str]:
        """The names under which its shards are leased."""
        return [self.shard_of(partition) for partition in range(self.shards)]

    def shard_of(self, partition: int) -> str:
        """The name under which the shard of a Kafka partition is leased."""
        shard = partition % self.shards
        return f"{self.id}#{shard}" if shard else self.id

    @property
    def requests_at_once_max(self) -> int:
        """The most requests under way at once, over all machines."""
        return 1 if self.order == "stream" else self.parallel_max

    @property
    def request_count_max(self) -> int:
        """The most events of one request."""
        return 1 if self.body_format == "single" else self.batch_count_max

    def resumed(self, *, at_ms: int) -> "Destination":
        """The destination once a person has resumed it after a pause, a hold or a disabling."""
        return replace(self, is_paused=False, is_disabled=False, resumed_at_ms=at_ms)

    def begins_anew(self, before: "Destination") -> bool:
        """Whether what is known of how it was reached before no longer applies."""
        was_halted = before.is_paused or before.is_disabled
        is_let_go = was_halted and not (self.is_paused or self.is_disabled)
        return is_let_go or any(
            getattr(self, name) != getattr(before, name) for name in _REACHED_BY
        )

    @property
    def id(self) -> str:
        return destination_id(self.stream, self.name)

    @property
    def config_key(self) -> bytes:
        return config_key("destination", self.id)
