"""A small HTTP client on the standard library, so that commands start without loading a large one.

HTTPS is checked against the certificates that the machine trusts (SSL_CERT_FILE names others), and
the proxy of the environment is used (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY).
"""

import base64
import json
import select
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Self
from urllib.parse import SplitResult, unquote, urlsplit

from shared.runtime.setup_error import UsageError

# This machine is asked without a proxy.
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})


class NoHttpAnswerError(Exception):
    """There was no answer; `is_unsent` if the connection failed, so that nothing was sent."""

    def __init__(self, error: Exception, *, is_unsent: bool = False) -> None:
        says = str(error) or type(error).__name__
        if isinstance(error, ssl.SSLCertVerificationError):
            says = f"its certificate is not trusted here: {error.verify_message};"
            says += " name a file with its authority in SSL_CERT_FILE"
        super().__init__(says)
        self.is_unsent = is_unsent


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer, whatever its status."""

    status: int
    # By name in lower case.
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_success(self) -> bool:
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def is_client_error(self) -> bool:
        return HTTPStatus.BAD_REQUEST <= self.status < HTTPStatus.INTERNAL_SERVER_ERROR

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        """Parse the content as JSON; raise ValueError if it is not JSON."""
        return json.loads(self.content)


class HttpClient:
    """Asks one server over a persistent connection; for one thread."""

    def __init__(self, url: str, *, timeout_s: float) -> None:
        self.url = url.rstrip("/")
        parts = _parts(url)
        self._connection, self._begin, self._headers = _way_to(parts, timeout_s)
        self._base = parts.path.rstrip("/")
        self._own = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(
        self,
        method: str,
        path: str | None = None,
        *,
        headers: Mapping[str, str | bytes] | None = None,
        body: bytes | None = None,
        bytes_max: int | None = None,
    ) -> HttpAnswer:
        """Send one request once: only the caller can know whether it may be repeated.

        `path` is below the address; None asks the address itself. `bytes_max` limits the bytes to
        read of an answer; the rest is lost.
        """
        connection = self._connection
        target = self._begin + (self._own if path is None else self._base + path)
        try:
            self._connect()
            connection.request(method, target, body, {**self._headers, **(headers or {})})
            with connection.getresponse() as response:
                content = response.read(bytes_max)
        except (OSError, HTTPException) as error:
            connection.close()
            raise NoHttpAnswerError(error) from error
        except ValueError as error:
            # The error's text has the whole header, which may be a key.
            connection.close()
            raise UsageError("A key has a character that HTTP headers cannot have.") from error
        except BaseException:
            connection.close()
            raise
        if bytes_max is not None:
            # The unread rest must not be read as the next answer.
            connection.close()
        received = {name.lower(): value for name, value in response.getheaders()}
        return HttpAnswer(response.status, received, content)

    def _connect(self) -> None:
        connection = self._connection
        if connection.sock is not None:
            # A connection that the server has closed is readable: it is at its end.
            if not select.select([connection.sock], [], [], 0)[0]:
                return
            connection.close()
        try:
            connection.connect()
        except (OSError, HTTPException, UnicodeError) as error:
            connection.close()
            raise NoHttpAnswerError(error, is_unsent=True) from error


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise UsageError(
            f"{url!r} is not an address: write it as http://127.0.0.1:8080 or"
            " https://hifi.example.com."
        )
    return parts


def _way_to(
    parts: SplitResult, timeout_s: float
) -> tuple[HTTPConnection, str, Mapping[str, str | bytes]]:
    """Return a connection, and for a proxy also the prefix of each path and the headers."""
    proxy = _proxy_for(parts)
    to = proxy or parts
    if parts.scheme == "http":
        plain = HTTPConnection(to.hostname or "", to.port, timeout=timeout_s)
        return (plain, f"http://{parts.netloc}", _for_proxy(proxy)) if proxy else (plain, "", {})
    tls = _trusted(ssl.get_default_verify_paths())
    secure = HTTPSConnection(to.hostname or "", to.port, timeout=timeout_s, context=tls)
    if proxy is not None:
        secure.set_tunnel(parts.hostname or "", parts.port or 443, _for_proxy(proxy))
    return secure, "", {}


@cache
def _trusted(_: ssl.DefaultVerifyPaths) -> ssl.SSLContext:
    """Return a cached context: reading the machine's authorities takes 20 ms."""
    return ssl.create_default_context()


def _proxy_for(parts: SplitResult) -> SplitResult | None:
    if parts.hostname in _HERE:
        return None
    from urllib import request  # noqa: PLC0415 - requests to this machine need not load it

    proxies = request.getproxies_environment()
    named = proxies.get(parts.scheme) or proxies.get("all")
    if not named or request.proxy_bypass(parts.netloc):
        return None
    return _parts(named if "://" in named else f"http://{named}")


def _for_proxy(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    who = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
    return {"proxy-authorization": f"Basic {base64.b64encode(who).decode()}"}
