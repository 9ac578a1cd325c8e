"""Builds a request to a destination, byte for byte, with its secrets unsealed.

A builder exists only in the worker process, until the destination's settings change: only here are
secrets plain text.
"""

import asyncio
import base64
import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never
from urllib.parse import unquote, urlsplit

from backports import zstd

from delivery.http.connection import ExchangeError, Reply, ReplyLimits
from delivery.http.dialer import Dialer
from delivery.http.endpoint import Endpoint
from delivery.http.idle import IdleConnections
from delivery.http.oauth import TokenSource
from delivery.http.outgoing_request import LABEL, IsLate, OutgoingRequest, RequestHead
from delivery.http.reply_room import ReplyRoom
from delivery.http.target import RequestTarget, read_target
from delivery.http.tunnel import Tunnel, connect_request
from shared.config.credentials import Basic, Bearer, OAuth2
from shared.config.destination import Destination
from shared.config.signing import signatures, signing_key
from shared.retry.attempt import Failure
from shared.runtime.certificates import CertificateError, client_context, identified_context
from shared.runtime.resolver import Resolver
from shared.runtime.secret_box import SecretBox, SecretUnavailableError

# At the fastest level, JSON events shrink to a fifth, at some 200 MB/s; a higher level takes four
# times as long to save another tenth of the bytes.
_GZIP_LEVEL = 1
_ZSTD_LEVEL = 1
# zlib's code for a gzip wrapper and its largest window.
_GZIP_WINDOW = 31
_UNAUTHORIZED = 401


@dataclass(slots=True)
class SenderContext:
    """The parts that all builders of a worker process share."""

    box: SecretBox
    resolver: Resolver
    allows_private: bool
    idle: IdleConnections = field(default_factory=IdleConnections)
    room: ReplyRoom = field(default_factory=ReplyRoom)
    # By whether they offer HTTP/2.
    _contexts: dict[bool, ssl.SSLContext] = field(default_factory=dict)

    def context(self, *, offers_http2: bool = False) -> ssl.SSLContext:
        """Return a shared TLS context without a client certificate: making one takes 20 ms."""
        if offers_http2 not in self._contexts:
            self._contexts[offers_http2] = client_context(offers_http2=offers_http2)
        return self._contexts[offers_http2]


class RequestBuilder:
    """Builds and sends the requests to one destination, with its present settings."""

    def __init__(self, destination: Destination, shared: SenderContext) -> None:
        self.destination = destination
        self._shared = shared
        self._signing_keys = [self._signing_key(each) for each in destination.signing_secrets]
        self._tokens: TokenSource | None = None
        self._token_endpoint: Endpoint | None = None
        headers = {
            **self._authorization(),
            **destination.headers,
            **{name: self._open(each) for name, each in destination.secret_headers.items()},
        }
        names = {name.lower() for name in headers}
        self._has_agent = "user-agent" in names
        if "accept-encoding" not in names:
            # Without it the answer may have any coding (RFC 9110, 12.5.3), and we decode none.
            headers["accept-encoding"] = "identity"
        self._endpoint = self._endpoint_of(destination.url, headers)

    async def post(
        self,
        body: bytes,
        headers: Mapping[str, str],
        limits: ReplyLimits,
        *,
        is_late: IsLate,
    ) -> tuple[Reply, bool]:
        """Send a request; return the answer, and whether it answers a second copy."""
        if self._has_agent:
            headers = {name: value for name, value in headers.items() if name != "user-agent"}
        sent = _compressed(body, self.destination)
        if sent is not body:
            headers = {**headers, "content-encoding": self.destination.compression}
        if self._signing_keys:
            signature = signatures(
                self._signing_keys,
                message_id=headers["webhook-id"],
                timestamp_s=headers["webhook-timestamp"],
                # Receivers check the signature of the uncompressed body.
                body=body,
            )
            headers = {**headers, "webhook-signature": signature}
        if self._tokens is None:
            return await self._post(sent, headers, limits, is_late)
        token = await self._tokens.token()
        reply, was_resent = await self._post(sent, headers, limits, is_late, token=token)
        if reply.status != _UNAUTHORIZED:
            return reply, was_resent
        # The token may have been revoked early: try once more with another.
        self._tokens.refuse(token)
        token = await self._tokens.token()
        if was_resent:
            # The destination may have taken the first of the two copies.
            headers = {**headers, LABEL: "1"}
        reply, is_resent = await self._post(sent, headers, limits, is_late, token=token)
        return reply, is_resent or was_resent

    def close(self) -> None:
        self._endpoint.close()
        if self._token_endpoint is not None:
            self._token_endpoint.close()

    async def _post(
        self,
        body: bytes,
        headers: Mapping[str, str],
        limits: ReplyLimits,
        is_late: IsLate,
        *,
        token: str | None = None,
    ) -> tuple[Reply, bool]:
        if token is not None:
            headers = {**headers, "authorization": f"Bearer {token}"}
        return await self._endpoint.post(OutgoingRequest(headers, body, is_late), limits)

    def _authorization(self) -> dict[str, str]:
        auth = self.destination.auth
        match auth:
            case Basic():
                return {"authorization": _basic(auth.username, self._open(auth.password))}
            case Bearer():
                return {"authorization": f"Bearer {self._open(auth.token)}"}
            case OAuth2():
                # Tokens are fetched later, by requests that obey the same rules as deliveries.
                self._token_endpoint = self._endpoint_of(auth.token_url, {})
                secret = self._open(auth.client_secret)
                self._tokens = TokenSource(auth, secret, self._fetch_token)
                return {}
            case None:
                url = urlsplit(self.destination.url)
                if url.username is None:
                    return {}
                who = unquote(url.username), unquote(url.password or "")
                return {"authorization": _basic(*who)}
            case _:
                assert_never(auth)

    async def _fetch_token(self, headers: dict[str, str], body: bytes) -> Reply:
        assert self._token_endpoint is not None, "tokens are fetched from somewhere"
        until_s = asyncio.get_running_loop().time() + self.destination.timeout_s
        request = OutgoingRequest(headers, body)
        reply, _ = await self._token_endpoint.post(request, ReplyLimits(until_s))
        return reply

    def _endpoint_of(self, url: str, headers: Mapping[str, str]) -> Endpoint:
        target = read_target(url)
        offers_http2 = self.destination.http2 and target.is_secure
        return Endpoint(
            RequestHead(target, headers),
            self._connector_to(target),
            self._context(offers_http2=offers_http2) if target.is_secure else None,
            self._shared.idle,
            offers_http2=offers_http2,
        )

    def _connector_to(self, target: RequestTarget) -> Dialer | Tunnel:
        """Return the way to a target: directly, or through the destination's proxy."""
        proxy = self.destination.proxy
        if proxy is None:
            return self._dialer_to(target)
        access = {}
        if proxy.username:
            password = self._open(proxy.password) if proxy.password else ""
            access = {"proxy-authorization": _basic(proxy.username, password)}
        through = read_target(proxy.url)
        return Tunnel(
            self._dialer_to(target),
            self._dialer_to(through),
            self._shared.context() if through.is_secure else None,
            connect_request(target, access),
        )

    def _dialer_to(self, target: RequestTarget) -> Dialer:
        return Dialer(
            target.host,
            target.port,
            self._shared.resolver,
            self._shared.allows_private,
            self.destination.connect_timeout_s,
        )

    def _context(self, *, offers_http2: bool) -> ssl.SSLContext:
        certificate = self.destination.client_certificate
        if certificate is None:
            return self._shared.context(offers_http2=offers_http2)
        key_pem = self._open(certificate.key_pem)
        try:
            return identified_context(
                certificate.certificate_pem, key_pem, offers_http2=offers_http2
            )
        except CertificateError as error:
            raise ExchangeError(Failure.REQUEST_UNBUILDABLE, str(error)) from error

    def _signing_key(self, sealed: str) -> bytes:
        try:
            return signing_key(self._open(sealed))
        except ValueError as error:
            raise ExchangeError(Failure.REQUEST_UNBUILDABLE, str(error)) from error

    def _open(self, sealed: str) -> str:
        try:
            return self._shared.box.unseal(sealed, owner=self.destination.id)
        except SecretUnavailableError as error:
            raise ExchangeError(Failure.SECRET_UNAVAILABLE, str(error)) from error


def _compressed(body: bytes, destination: Destination) -> bytes:
    match destination.compression:
        case "none":
            return body
        case "gzip":
            packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
            return packer.compress(body) + packer.flush()
        case "zstd":
            return zstd.compress(body, _ZSTD_LEVEL)
        case _:
            assert_never(destination.compression)


def _basic(username: str, password: str) -> str:
    credentials = f"{username}:{password}".encode()
    return "Basic " + base64.b64encode(credentials).decode()
