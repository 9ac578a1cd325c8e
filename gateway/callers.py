"""Identifies a caller by API key, JWT or client certificate, and checks their permissions.

With authentication off, every caller is the default tenant with all permissions. Keys come from the
config topic, so a new or deleted key takes effect at the next request.
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
    """The source of the configuration; shared.runtime's ConfigFeed in a running gateway."""

    @property
    def configuration(self) -> Configuration: ...

    @property
    def problem(self) -> str | None:
        """Why the configuration may be out of date; None while it is current."""

    @property
    def age_s(self) -> float:
        """Seconds since the configuration was last known to be current."""


class Uses(Protocol):
    """Times of keys' last uses; gateway.fleet's KeyUses in a running gateway."""

    # Last uses in this process: fingerprint -> milliseconds.
    here: dict[str, int]

    def last_ms(self, secret: Secret) -> int | None:
        """Return when a text of a key was last used, at any gateway."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller and their permissions."""

    tenant: str
    scopes: frozenset[str]
    # Empty: every stream of the tenant.
    streams: frozenset[str] = frozenset()
    # Only pages of these origins may use the key; with None, all callers except pages may.
    origins: frozenset[str] | None = None
    # When the permissions expire; None means never.
    expires_at_ms: int | None = None
    # The key that must sign the body; empty when no signature is required.
    signing_key: str = ""
    # How the caller was identified, and by which name.
    kind: AuthorKind = "anybody"
    name: str = ""
    # The caller uses a link from somebody else, and may be one of their customers.
    has_link: bool = False
    # Identifies the key's text in records of uses; empty without a key.
    fingerprint: str = ""

    @property
    def author(self) -> Author:
        """The caller as the author of a change."""
        return Author(self.tenant, self.kind, self.name)

    def check(self, scope: Scope, *, origin: str | None = None) -> None:
        """Refuse a caller without the scope, or from a page of another origin."""
        if scope not in self.scopes:
            raise Problem("scope_missing", f"This needs the scope {scope!r}, which you lack.")
        if self.origins is not None and origin not in self.origins:
            raise Problem("origin_forbidden", "This key works only on pages of its origins.")

    def stream(self, name: str, configuration: Configuration) -> Stream:
        """Return the stream of that name; refuse another tenant's as unknown."""
        return self._own(name, configuration.streams.get(name))

    def past_stream(self, name: str, configuration: Configuration) -> Stream | RemovedStream:
        """Return the stream, even if it was removed: its owner may still read its records."""
        known: Stream | RemovedStream | None = configuration.streams.get(name)
        if known is None:
            known = configuration.removed_streams.get(name)
        return self._own(name, known)

    def _own(self, name: str, stream: AnyStream | None) -> AnyStream:
        if stream is None or stream.tenant != self.tenant:
            raise Problem(
                "unknown_stream",
                f"There is no stream {name[:100]!r}; GET /v1/streams lists your streams.",
            )
        self.check_name(name)
        return stream

    def check_operator(self) -> None:
        """Refuse all callers except the operator, an administrator of the default tenant."""
        self.check("admin")
        if self.tenant != DEFAULT_TENANT or self.streams:
            raise Problem("scope_missing", "Only the operator of Hifi may do this.")

    def check_name(self, stream: str) -> None:
        """Refuse a stream that the caller's key is not valid for."""
        if self.streams and stream not in self.streams:
            raise Problem("stream_forbidden", f"This key is not valid for the stream {stream!r}.")

    def check_grant(self, key: ApiKey) -> None:
        """Refuse to grant a key for more streams, or for longer, than the caller's own."""
        is_own = not self.streams or key.tenant == self.tenant
        if not (is_own and is_within(key.streams, self.streams)):
            allowed = ", ".join(sorted(self.streams))
            detail = f"Your key can make keys only for its own streams: {allowed}."
            raise Problem("scope_missing", detail, pointer="/streams")
        ends_ms = self.expires_at_ms
        if ends_ms is not None and (key.expires_at_ms is None or key.expires_at_ms > ends_ms):
            detail = f"A new key may not outlast your key: expires_at_ms {ends_ms} at most."
            raise Problem("scope_missing", detail, pointer="/expires_at_ms")

    def sees(self, stream: Stream | RemovedStream) -> bool:
        """Return whether the caller may see a stream."""
        is_open = not self.streams or stream.name in self.streams
        return stream.tenant == self.tenant and is_open

    def table(self, name: str, configuration: Configuration) -> Table:
        """Return the table of that name; refuse another tenant's as unknown."""
        table = configuration.tables.get(name)
        if table is None or table.tenant != self.tenant:
            raise Problem(
                "unknown_table",
                f"There is no table {name[:100]!r}; GET /v1/tables lists your tables.",
            )
        self.check_tables()
        return table

    def sees_table(self, table: Table) -> bool:
        return table.tenant == self.tenant and not self.streams

    def check_tables(self) -> None:
        """Refuse keys limited to some streams, and browser keys, which everybody can see."""
        if self.streams or self.origins is not None:
            raise Problem("scope_missing", "Tables need a key for all streams, not a browser key.")

    def channel(self, name: str, configuration: Configuration) -> Channel:
        """Return the caller's channel of that name."""
        self.check_channels()
        channel = configuration.channels.get(f"{self.tenant}/{name}")
        if channel is None:
            raise Problem(
                "unknown_channel",
                f"There is no channel {name[:100]!r}; GET /v1/channels lists your channels.",
            )
        return channel

    def sees_channel(self, channel: Channel) -> bool:
        return channel.tenant == self.tenant and not self.streams and not self.has_link

    def check_channels(self) -> None:
        """Refuse links, and keys for some streams: a channel gets notices about all streams."""
        if self.streams or self.has_link:
            who = "A link" if self.has_link else "A key that is limited to some streams"
            raise Problem("scope_missing", f"{who} cannot use channels.")

    def check_signature(self, header: str | None, *, body: bytes, now_ms: int) -> None:
        """Refuse a body whose signature is missing, old or wrong, if this caller must sign."""
        if not self.signing_key:
            return
        if not header or not is_signed(
            header, signing_key=self.signing_key, body=body, now_ms=now_ms
        ):
            raise Problem(
                "bad_signature",
                "Hifi-Signature must be t=SECONDS,v1=HEX, with the HMAC-SHA256 over SECONDS.BODY"
                " as sent, and not older than 5 minutes.",
                headers=_CHALLENGE,
            )


@dataclass(frozen=True, slots=True)
class Writer:
    """A caller who may send to a stream, according to one version of the configuration."""

    configuration: Configuration
    caller: Caller
    stream: Stream
    tenant: Tenant | None


EVERYBODY = Caller(tenant=DEFAULT_TENANT, scopes=SCOPES)


class Callers:
    """Identifies callers."""

    def __init__(self, config: ConfigSource, settings: Settings, uses: Uses) -> None:
        self._config = config
        self.uses = uses
        self._used = uses.here
        self.is_on = settings.asks_for_keys
        self._hosts = settings.host_names
        # The keys for which `_origins` was computed, and its result.
        self._indexed: tuple[Mapping[str, ApiKey], Mapping[str, list[ApiKey]]] = ({}, {})
        # Callers who have used one of these keys: at most one for each secret.
        self._known: tuple[Mapping[str, ApiKey], dict[bytes, Caller]] = ({}, {})
        key_set = settings.jwt_keys_file
        self._tokens = None if key_set is None else TokenReader(key_set, settings)
        # The operator's key, which is not in the configuration and makes the first keys.
        self._operator: ApiKey | None = None
        if (shown := read_text(settings.operator_key)) is not None:
            secret = secret_from(settings.operator_key, signs=False)
            self._operator = ApiKey(shown.key_id, (secret,), scopes=SCOPES)

    def of_request(
        self, headers: Mapping[bytes, str], *, state: Mapping[str, Any], now_ms: int
    ) -> Caller:
        """Return the caller that the headers identify; refuse unknown and invalid credentials."""
        authorization = headers.get(b"authorization")
        if not self.is_on:
            self._check_open(headers)
            # A link has its limits even where no key is required.
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
        """Return a stream's writer; refuse pages. `known` is valid until a setting changes."""
        configuration = self._config.configuration
        if (
            known is not None
            and known.configuration is configuration
            and self._lasts(known, now_ms)
        ):
            self._used[known.caller.fingerprint] = now_ms
            return known
        caller = self.of_request(headers, state={}, now_ms=now_ms)
        caller.check("write")
        tenant = configuration.tenants.get(caller.tenant)
        return Writer(configuration, caller, caller.stream(stream, configuration), tenant)

    def _lasts(self, known: Writer, now_ms: int) -> bool:
        """Return whether a writer is still valid; tokens have to be checked each time."""
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
        self._used[caller.fingerprint] = now_ms
        return caller

    def _owner(self, text: str, keys: Mapping[str, ApiKey]) -> Caller:
        shown = read_text(text)
        if shown is None:
            raise bad_credential("This is not a key, or only part of one: its checksum is wrong.")
        key = keys.get(shown.key_id)
        if self._operator is not None and self._operator.secret_of(shown) is not None:
            key = self._operator
        secret = key.secret_of(shown) if key is not None else None
        # One text for both cases, so that nobody can find out which ids exist.
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
            fingerprint=secret.fingerprint,
        )

    def allowed_origin(self, origin: str, stream: str) -> bool:
        """Return whether any key lets pages of this origin send to the stream."""
        configured = self._config.configuration.streams.get(stream)
        return configured is not None and any(
            key.tenant == configured.tenant and (not key.streams or stream in key.streams)
            for key in self._origins().get(origin, ())
        )

    def _origins(self) -> Mapping[str, list[ApiKey]]:
        """Return the keys for pages of each origin."""
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
        """Refuse requests through proxies, to unknown host names, or from other origins' pages."""
        if not FORWARDED.isdisjoint(headers):
            raise Problem(
                "proxied_without_keys",
                "This request came through a proxy, but this gateway requires no keys: set"
                " HIFI_GATEWAY_AUTH=keys.",
            )
        host = headers.get(b"host", "")
        if host and not is_ours(host, self._hosts):
            raise Problem(
                "misdirected",
                f"This gateway requires no keys, so it does not serve the host {host[:100]!r}: call"
                " it by its address, or list the name in HIFI_GATEWAY_HOSTS.",
            )
        origin = headers.get(b"origin")
        if origin is None or origin in self._origins():
            return
        if not may_post(host=host, origin=origin, fetch_site=headers.get(b"sec-fetch-site")):
            raise Problem(
                "origin_forbidden",
                "Pages of other origins may not use a gateway that requires no keys: make a"
                " browser key with this origin.",
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
    """Return the caller with a certificate from our authority; its common name is the tenant."""
    names = [
        value
        for group in certificate.get("subject", ())
        for name, value in group
        if name == "commonName"
    ]
    if len(names) != 1 or not is_name(names[0]):
        raise bad_credential(
            "The common name of the client certificate is not a valid tenant name."
        )
    scopes = frozenset({"write", "read"})
    return Caller(tenant=names[0], scopes=scopes, kind="certificate", name=names[0])
