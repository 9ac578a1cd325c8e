"""Identifies a caller by API key, JWT or client certificate, and checks what they may do.

With authentication off everybody is the default tenant and may do everything. Keys come from the
config topic, so one that is written or removed there counts on the next request.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gateway.authors import Author, AuthorKind
from gateway.jwt import TokenReader
from gateway.problems import Problem, bad_credential
from gateway.settings import Settings
from shared.config.access import (
    DEFAULT_TENANT,
    LINK_PREFIX,
    SCOPES,
    ApiKey,
    Scope,
    Secret,
    Tenant,
    is_signed,
    is_within,
    read_text,
    secret_from,
)
from shared.config.configuration import Configuration, RemovedStream, Stream
from shared.config.outside.channel import Channel
from shared.config.table import Table
from shared.event.topics import is_name
from shared.runtime.hosts import FORWARDED, is_ours, may_post
from shared.runtime.tokens.links import LinkError, read_link

AnyStream = TypeVar("AnyStream", bound=Stream | RemovedStream)
_CHALLENGE = ((b"www-authenticate", b'Bearer realm="hifi"'),)


class ConfigSource(Protocol):
    """Where the newest configuration is; shared.runtime's ConfigFeed in a running gateway."""

    @property
    def configuration(self) -> Configuration: ...

    @property
    def problem(self) -> str | None:
        """The reason why the configuration may be old; None while it is fresh."""

    @property
    def age_s(self) -> float:
        """Seconds since it was last known to be the newest."""


class Uses(Protocol):
    """When texts of keys were used; gateway.fleet's KeyUses in a running gateway."""

    # Uses seen here: mark -> milliseconds.
    here: dict[str, int]

    def last_ms(self, secret: Secret) -> int | None:
        """Return when a text was used last, here or elsewhere."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller and their permissions."""

    tenant: str
    scopes: frozenset[str]
    # Empty: every stream of the tenant.
    streams: frozenset[str] = frozenset()
    # Only pages of these origins may use it; for None, all callers but pages.
    origins: frozenset[str] | None = None
    # When it expires; None means never.
    expires_at_ms: int | None = None
    # The key that must sign the body; empty when no signature is required.
    signing_key: str = ""
    # How we know them, and their name there.
    kind: AuthorKind = "anybody"
    name: str = ""
    # The caller opened a link that somebody gave them, perhaps as a customer.
    has_link: bool = False
    # Identifies the key's text in the records of its uses; empty without a key.
    mark: str = ""

    @property
    def author(self) -> Author:
        """The caller as the author of a change."""
        return Author(self.tenant, self.kind, self.name)

    def check(self, scope: Scope, *, origin: str | None = None) -> None:
        """Refuse a caller without the scope, or on a page of a foreign origin."""
        if scope not in self.scopes:
            raise Problem("scope_missing", f"This needs the scope {scope!r}, which is not granted.")
        if self.origins is not None and origin not in self.origins:
            raise Problem("origin_forbidden", "This key works only in pages of its own origins.")

    def stream(self, name: str, configuration: Configuration) -> Stream:
        """Return the stream of that name; another tenant's counts as unknown."""
        return self._own(name, configuration.streams.get(name))

    def past_stream(self, name: str, configuration: Configuration) -> Stream | RemovedStream:
        """Return the same, or a removed stream: its events' records still belong to its owner."""
        known: Stream | RemovedStream | None = configuration.streams.get(name)
        if known is None:
            known = configuration.removed_streams.get(name)
        return self._own(name, known)

    def _own(self, name: str, stream: AnyStream | None) -> AnyStream:
        if stream is None or stream.tenant != self.tenant:
            raise Problem(
                "unknown_stream",
                f"There is no stream {name[:100]!r}; GET /v1/streams lists the ones there are.",
            )
        self.check_name(name)
        return stream

    def check_operator(self) -> None:
        """Refuse everybody but the operator of Hifi: an administrator of the default tenant."""
        self.check("admin")
        if self.tenant != DEFAULT_TENANT or self.streams:
            raise Problem("scope_missing", "This is done by the operator alone.")

    def check_name(self, stream: str) -> None:
        """Refuse requests about a stream that the caller's key is not for."""
        if self.streams and stream not in self.streams:
            raise Problem("stream_forbidden", f"This key does not work for the stream {stream!r}.")

    def check_grant(self, key: ApiKey) -> None:
        """Refuse to grant a key for more streams, or for longer, than the caller's own."""
        is_own = not self.streams or key.tenant == self.tenant
        if not (is_own and is_within(key.streams, self.streams)):
            allowed = ", ".join(sorted(self.streams))
            detail = f"A key that is for some streams makes keys for those alone: {allowed}."
            raise Problem("scope_missing", detail, pointer="/streams")
        ends_ms = self.expires_at_ms
        if ends_ms is not None and (key.expires_at_ms is None or key.expires_at_ms > ends_ms):
            detail = f"A key that ends makes keys that end no later: expires_at_ms {ends_ms}."
            raise Problem("scope_missing", detail, pointer="/expires_at_ms")

    def sees(self, stream: Stream | RemovedStream) -> bool:
        """Say whether a stream is one of the caller's."""
        is_open = not self.streams or stream.name in self.streams
        return stream.tenant == self.tenant and is_open

    def table(self, name: str, configuration: Configuration) -> Table:
        """Return the table of that name; another tenant's counts as unknown."""
        table = configuration.tables.get(name)
        if table is None or table.tenant != self.tenant:
            raise Problem(
                "unknown_table",
                f"There is no table {name[:100]!r}; GET /v1/tables lists the ones there are.",
            )
        self.check_tables()
        return table

    def sees_table(self, table: Table) -> bool:
        return table.tenant == self.tenant and not self.streams

    def check_tables(self) -> None:
        """Refuse a key that is only for some streams, or that stands in a page for all to see."""
        if self.streams or self.origins is not None:
            raise Problem("scope_missing", "A key for browsers, or some streams, is for no table.")

    def channel(self, name: str, configuration: Configuration) -> Channel:
        """Return the channel of that name of the caller's tenant."""
        self.check_channels()
        channel = configuration.channels.get(f"{self.tenant}/{name}")
        if channel is None:
            raise Problem(
                "unknown_channel",
                f"There is no channel {name[:100]!r}; GET /v1/channels lists the ones there are.",
            )
        return channel

    def sees_channel(self, channel: Channel) -> bool:
        return channel.tenant == self.tenant and not self.streams and not self.has_link

    def check_channels(self) -> None:
        """Refuse keys for some streams, as a channel hears of all, and callers with a link."""
        if self.streams or self.has_link:
            who = "A link shows" if self.has_link else "This key is for some streams, and so sees"
            raise Problem("scope_missing", f"{who} no channel.")

    def check_signature(self, header: str | None, *, body: bytes, now_ms: int) -> None:
        """Refuse a body whose signature is missing, old or wrong, if this caller must sign."""
        if not self.signing_key:
            return
        if not header or not is_signed(
            header, signing_key=self.signing_key, body=body, now_ms=now_ms
        ):
            raise Problem(
                "bad_signature",
                "Hifi-Signature must be t=SECONDS,v1=HEX: HMAC-SHA256 over SECONDS.BODY as sent,"
                " not older than 5 minutes.",
                headers=_CHALLENGE,
            )


@dataclass(frozen=True, slots=True)
class Writer:
    """The sender to a stream, as one configuration knows them."""

    configuration: Configuration
    caller: Caller
    stream: Stream
    tenant: Tenant | None


EVERYBODY = Caller(tenant=DEFAULT_TENANT, scopes=SCOPES)


class Callers:
    """Tells callers apart."""

    def __init__(self, config: ConfigSource, settings: Settings, uses: Uses) -> None:
        self._config = config
        self.uses = uses
        self._used = uses.here
        self.is_on = settings.asks_for_keys
        self._hosts = settings.host_names
        # The input of `_origins`, and its result.
        self._indexed: tuple[Mapping[str, ApiKey], Mapping[str, list[ApiKey]]] = ({}, {})
        # Callers who showed one of these keys so far: at most one for each secret.
        self._known: tuple[Mapping[str, ApiKey], dict[bytes, Caller]] = ({}, {})
        key_set = settings.jwt_keys_file
        self._tokens = None if key_set is None else TokenReader(key_set, settings)
        # The key outside the configuration, which makes the first keys.
        self._operator: ApiKey | None = None
        if (shown := read_text(settings.operator_key)) is not None:
            secret = secret_from(settings.operator_key, signs=False)
            self._operator = ApiKey(shown.key_id, (secret,), scopes=SCOPES)

    def of_request(
        self, headers: Mapping[bytes, str], *, state: Mapping[str, Any], now_ms: int
    ) -> Caller:
        """Return the sender of the headers; Problem when they are unknown or not credible."""
        authorization = headers.get(b"authorization")
        if not self.is_on:
            self._check_open(headers)
            # A link is limited to what it shows, also where no key is required.
            if authorization is None or LINK_PREFIX not in authorization:
                return EVERYBODY
        if authorization is None:
            certificate = state.get("peer_certificate")
            if certificate:
                return _of_certificate(certificate)
            raise Problem(
                "unauthenticated",
                "Send an API key: Authorization: Bearer hifisk_...",
                headers=_CHALLENGE,
            )
        scheme, _, credential = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise bad_credential("Authorization must be: Bearer KEY.")
        if self._tokens is not None and credential.count(".") == 2:  # noqa: PLR2004 - a JWT's dots
            bearer = self._tokens.read(credential.strip())
            return Caller(bearer.tenant, bearer.scopes, kind="token", name=bearer.subject)
        return self.of_key(credential.strip(), now_ms=now_ms)

    def writer(
        self, headers: Mapping[bytes, str], stream: str, *, now_ms: int, known: Writer | None
    ) -> Writer:
        """Return who writes to a stream from no page; `known` holds until a setting changes."""
        configuration = self._config.configuration
        if (
            known is not None
            and known.configuration is configuration
            and self._lasts(known, now_ms)
        ):
            self._used[known.caller.mark] = now_ms
            return known
        caller = self.of_request(headers, state={}, now_ms=now_ms)
        caller.check("write")
        tenant = configuration.tenants.get(caller.tenant)
        return Writer(configuration, caller, caller.stream(stream, configuration), tenant)

    def _lasts(self, known: Writer, now_ms: int) -> bool:
        """Say whether it still holds without a look at the key: tokens are read each time."""
        ends_ms = known.caller.expires_at_ms
        return self._tokens is None and (ends_ms is None or now_ms < ends_ms)

    def of_key(self, text: str, *, now_ms: int) -> Caller:
        """Return the owner of a key, or the holder of a link."""
        keys = self._config.configuration.keys
        if text.startswith(LINK_PREFIX):
            return _of_link(text, keys, now_ms=now_ms)
        if self._known[0] is not keys:
            self._known = keys, {}
        # Never keep the text itself.
        digest = hashlib.sha256(text.encode()).digest()
        caller = self._known[1].get(digest)
        if caller is None:
            caller = self._known[1][digest] = self._owner(text, keys)
        if caller.expires_at_ms is not None and now_ms >= caller.expires_at_ms:
            raise bad_credential("The key has expired.")
        self._used[caller.mark] = now_ms
        return caller

    def _owner(self, text: str, keys: Mapping[str, ApiKey]) -> Caller:
        shown = read_text(text)
        if shown is None:
            raise bad_credential("This is no key, or not all of one: its checksum is wrong.")
        key = keys.get(shown.key_id)
        if self._operator is not None and self._operator.secret_of(shown) is not None:
            key = self._operator
        secret = key.secret_of(shown) if key is not None else None
        # One text for both cases: nobody learns from us which ids exist.
        if key is None or secret is None:
            raise bad_credential("There is no such key (any more).")
        return Caller(
            tenant=key.tenant,
            scopes=key.scopes,
            streams=key.streams,
            origins=key.origins or None,
            expires_at_ms=key.expires_at_ms,
            signing_key=secret.signing_key if key.must_sign else "",
            kind="key",
            name=key.id,
            mark=secret.mark,
        )

    def allowed_origin(self, origin: str, stream: str) -> bool:
        """Say whether some key lets pages of this origin send to the stream; asked before keys."""
        configured = self._config.configuration.streams.get(stream)
        return configured is not None and any(
            key.tenant == configured.tenant and (not key.streams or stream in key.streams)
            for key in self._origins().get(origin, ())
        )

    def _origins(self) -> Mapping[str, list[ApiKey]]:
        """The keys for pages of each origin."""
        keys = self._config.configuration.keys
        made_of, origins = self._indexed
        if made_of is not keys:
            origins = defaultdict(list)
            for key in keys.values():
                for origin in key.origins:
                    origins[origin].append(key)
            self._indexed = keys, origins
        return origins

    def _check_open(self, headers: Mapping[bytes, str]) -> None:
        """Refuse requests from beyond the programs that a gateway without keys is open to."""
        if not FORWARDED.isdisjoint(headers):
            raise Problem(
                "proxied_without_keys",
                "This request came through a proxy, and this gateway asks nobody for a key: set"
                " HIFI_GATEWAY_AUTH=keys.",
            )
        host = headers.get(b"host", "")
        if host and not is_ours(host, self._hosts):
            raise Problem(
                "misdirected",
                f"This gateway asks nobody for a key and does not answer to {host[:100]!r}: call it"
                " by its address, or list the name in HIFI_GATEWAY_HOSTS.",
            )
        origin = headers.get(b"origin")
        if origin is None or origin in self._origins():
            return
        if not may_post(host=host, origin=origin, fetch_site=headers.get(b"sec-fetch-site")):
            raise Problem(
                "origin_forbidden",
                "Pages of other origins may not act through a gateway that asks nobody for a key:"
                " make a browser key with this origin.",
            )


def _of_link(text: str, keys: Mapping[str, ApiKey], *, now_ms: int) -> Caller:
    try:
        link = read_link(text, keys, now_ms=now_ms)
    except LinkError as error:
        raise bad_credential(str(error)) from error
    return Caller(
        tenant=link.tenant,
        scopes=frozenset({"read"}),
        streams=link.streams,
        expires_at_ms=link.expires_at_ms,
        kind="key",
        name=link.key,
        has_link=True,
    )


def _of_certificate(certificate: Mapping[str, Any]) -> Caller:
    """A client whose certificate our own authority has signed: its common name is the tenant."""
    names = [
        value
        for group in certificate.get("subject", ())
        for name, value in group
        if name == "commonName"
    ]
    if len(names) != 1 or not is_name(names[0]):
        raise bad_credential(
            "The common name of the client certificate is not the name of a tenant."
        )
    scopes = frozenset({"write", "read"})
    return Caller(tenant=names[0], scopes=scopes, kind="certificate", name=names[0])
