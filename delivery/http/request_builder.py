"""Builds a request to a destination, byte for byte, with its secrets unsealed.

A builder exists only in the worker process, until the destination's settings change: only here are
secrets plain text.
"""

import asyncio
import base64
import ssl
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never
from urllib.parse import unquote, urlsplit

from backports import zstd

from delivery.http.connection import ExchangeError, Reply, ReplyLimits
from delivery.http.endpoint import Endpoint, endpoint_of
from delivery.http.idle import IdleConnections
from delivery.http.oauth import TokenSource
from delivery.http.reply_room import ReplyRoom
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

# Returns whether another process may already have sent the same request.
IsLate: TypeAlias = Callable[[], bool]


@dataclass(slots=True)
class SenderContext:
    """The parts that all builders of a worker process share."""

    box: SecretBox
    resolver: Resolver
    allows_private: bool
    idle: IdleConnections = field(default_factory=IdleConnections)
    room: ReplyRoom = field(default_factory=ReplyRoom)
    _context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Return the shared TLS context without a client certificate: making one takes 20 ms."""
        if self._context is None:
            self._context = client_context()
        return self._context


class RequestBuilder:
    """Builds and sends the requests to one destination, with its present settings."""

    def __init__(self, destination: Destination, shared: SenderContext) -> None:
        self.destination = destination
        self._shared = shared
        self._endpoint = self._endpoint_of(destination.url)
        self._signing_keys = [self._signing_key(each) for each in destination.signing_secrets]
        self._tokens: TokenSource | None = None
        self._token_endpoint: Endpoint | None = None
        headers = {
            "host": self._endpoint.authority,
            **self._authorization(),
            **destination.headers,
            **{name: self._open(each) for name, each in destination.secret_headers.items()},
        }
        names = {name.lower() for name in headers}
        self._has_agent = "user-agent" in names
        if "accept-encoding" not in names:
            # Without it the answer may have any coding (RFC 9110, 12.5.3), and we decode none.
            headers["accept-encoding"] = "identity"
        self._head = _head(self._endpoint.target, headers)

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
        reply, is_resent = await self._post(sent, headers, limits, is_late, token=token)
        if reply.status != _UNAUTHORIZED:
            return reply, is_resent
        # The token may have been revoked early: try once more with another.
        self._tokens.refuse(token)
        token = await self._tokens.token()
        return await self._post(sent, headers, limits, is_late, token=token)

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
        lines = _lines({**headers, "content-length": str(len(body))})

        def build(may_be_duplicate: bool) -> bytes:  # noqa: FBT001 - as Build asks
            label = b"hifi-maybe-duplicate: 1\r\n"
            # Asked now, as the process may have been frozen since it began to connect.
            is_labelled = "hifi-maybe-duplicate" not in headers and (may_be_duplicate or is_late())
            return b"".join((self._head, lines, label if is_labelled else b"", b"\r\n", body))

        return await self._endpoint.post(build, limits)

    def _authorization(self) -> dict[str, str]:
        auth = self.destination.auth
        match auth:
            case Basic():
                return _basic(auth.username, self._open(auth.password))
            case Bearer():
                return {"authorization": f"Bearer {self._open(auth.token)}"}
            case OAuth2():
                # Tokens are fetched later, by requests that obey the same rules as deliveries.
                self._token_endpoint = self._endpoint_of(auth.token_url)
                secret = self._open(auth.client_secret)
                self._tokens = TokenSource(auth, secret, self._fetch_token)
                return {}
            case None:
                url = urlsplit(self.destination.url)
                has_user = url.username is not None
                return (
                    _basic(unquote(url.username or ""), unquote(url.password or ""))
                    if has_user
                    else {}
                )
            case _:
                assert_never(auth)

    async def _fetch_token(self, headers: dict[str, str], body: bytes) -> Reply:
        endpoint = self._token_endpoint
        assert endpoint is not None, "tokens are fetched from somewhere"
        head = _head(
            endpoint.target,
            {"host": endpoint.authority, **headers, "content-length": str(len(body))},
        )
        until_s = asyncio.get_running_loop().time() + self.destination.timeout_s
        reply, _ = await endpoint.post(lambda _: head + b"\r\n" + body, ReplyLimits(until_s))
        return reply

    def _endpoint_of(self, url: str) -> Endpoint:
        return endpoint_of(
            url,
            tls=self._context,
            resolver=self._shared.resolver,
            allows_private=self._shared.allows_private,
            connect_timeout_s=self.destination.connect_timeout_s,
            idle=self._shared.idle,
        )

    def _context(self) -> ssl.SSLContext:
        certificate = self.destination.client_certificate
        if certificate is None:
            return self._shared.context()
        try:
            return identified_context(certificate.certificate_pem, self._open(certificate.key_pem))
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


def _basic(username: str, password: str) -> dict[str, str]:
    credentials = f"{username}:{password}".encode()
    return {"authorization": "Basic " + base64.b64encode(credentials).decode()}


def _head(target: str, headers: Mapping[str, str]) -> bytes:
    return b"POST %b HTTP/1.1\r\n%b" % (target.encode(), _lines(headers))


def _lines(headers: Mapping[str, str]) -> bytes:
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if text.count("\n") != len(headers) or text.count("\r") != len(headers):
        raise ExchangeError(Failure.REQUEST_UNBUILDABLE, "a header holds a line break")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise ExchangeError(Failure.REQUEST_UNBUILDABLE, "a header is not Latin-1") from error
