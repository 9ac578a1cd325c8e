"""Posts bodies over one kept connection, with the standard library alone.

Head and body are sent in one piece if they fit, as the gateway handles such requests fastest.
"""

import http.client
import io
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hifi_client.errors import NoAnswerError, SetupError

# Enough for an entry about each event of the largest request.
ANSWER_BYTES_MAX = 16_000_000
_SEND_BUFFER_BYTES = 1_048_576
_PIECE_BYTES = 65_536
_SWITCHING, _LEAST_FINAL = 101, 200
_STATUS = re.compile(r"HTTP/1\.1 [2-5]\d\d ")
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9a-fA-F:.]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a gateway."""

    url: str
    host: str
    port: int
    # The path before /v1/, if a proxy serves the gateway under one.
    path: str
    tls: ssl.SSLContext | None

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def read_target(
    url: str,
    *,
    ca_file: Path | str | None = None,
    client_certificate: tuple[Path | str, Path | str] | None = None,
) -> Target:
    """Return the parts of a URL; raise SetupError if it is not a gateway's address."""
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError as error:
        raise SetupError(f"{url!r} is not an address of a gateway ({error}).") from error
    if parts.scheme not in {"http", "https"} or not _HOST.fullmatch(host):
        raise SetupError(
            f"{url!r} is not an address of a gateway: write it as http://127.0.0.1:8080 or"
            " https://hifi.example."
        )
    if parts.username or parts.query or parts.fragment:
        raise SetupError(f"{url!r} is more than an address: pass the key as key=.")
    tls = None
    if parts.scheme == "https":
        try:
            tls = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
            if client_certificate is not None:
                tls.load_cert_chain(*client_certificate)
        except OSError as error:
            raise SetupError(f"A certificate or its key cannot be read ({error}).") from error
    path = parts.path.rstrip("/").removesuffix("/v1")
    return Target(url.rstrip("/"), host, port or (443 if tls else 80), path, tls)


class Connection:
    """A connection for one thread."""

    def __init__(self, target: Target, *, timeout_s: float) -> None:
        self._target = target
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None

    def post(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Post once; repeat at once only if a kept connection had been closed."""
        while True:
            kept = self._socket
            connected = kept or self._connect()
            self._socket = connected
            try:
                return self._exchange(connected, path, headers, body)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if kept is not None and isinstance(error, ConnectionError):
                    continue
                why = str(error) or type(error).__name__
                sentence = f"{self._target.url} did not answer ({why})."
                raise NoAnswerError(sentence, is_unsent=False) from error
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> socket.socket:
        target = self._target
        plain: socket.socket | None = None
        try:
            plain = socket.create_connection((target.host, target.port), self._timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Send a batch in one call: after each call, a thread waits for its turn in Python.
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
            if target.tls is None:
                return plain
            return target.tls.wrap_socket(plain, server_hostname=target.host)
        except OSError as error:
            if plain is not None:
                plain.close()
            sentence = f"Cannot connect to {target.url} ({error}): is the gateway running?"
            raise NoAnswerError(sentence, is_unsent=True) from error

    def _exchange(
        self, connected: socket.socket, path: str, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        lines = [f"POST {self._target.path}{path} HTTP/1.1", f"host: {self._target.host_header}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(f"content-length: {len(body)}\r\n\r\n")
        _send(connected, "\r\n".join(lines).encode("latin-1"), body)
        begun = connected.recv(_PIECE_BYTES)
        answer = _plain(begun)
        if answer is not None:
            if answer.headers.get("connection", "keep-alive").lower() != "keep-alive":
                self.close()
            return answer
        reading = _ReadAhead(connected, begun)
        response = http.client.HTTPResponse(reading, method="POST")  # type: ignore[arg-type]
        try:
            response.begin()
            while _SWITCHING < response.status < _LEAST_FINAL:
                # An interim status such as 103; the answer follows, so keep its reader open.
                response.fp = None  # type: ignore[assignment]
                response = http.client.HTTPResponse(reading, method="POST")  # type: ignore[arg-type]
                response.begin()
            reading.has_head = True
            said = response.read(ANSWER_BYTES_MAX)
            if response.length:
                raise http.client.IncompleteRead(said, response.length)
            found = {name.lower(): value for name, value in response.getheaders()}
            if response.will_close or not response.isclosed():
                self.close()
            return Answer(response.status, found, said)
        except ValueError as error:
            # The standard library raises it for a chunk with a negative length.
            raise http.client.HTTPException(f"not HTTP: {error}") from error
        finally:
            response.close()


def _send(connected: socket.socket, head: bytes, body: bytes) -> None:
    """Send head and body at once, without copying the body, unless TLS copies it anyway."""
    if isinstance(connected, ssl.SSLSocket) or not hasattr(connected, "sendmsg"):
        connected.sendall(head + body)
        return
    sent = connected.sendmsg([head, body])
    if sent < len(head):
        connected.sendall(head[sent:] + body)
    elif sent < len(head) + len(body):
        connected.sendall(memoryview(body)[sent - len(head) :])


def _plain(begun: bytes) -> Answer | None:
    """Return a plain answer that arrived in one piece, as nearly all do; this saves 0.1 ms."""
    head, broken, body = begun.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    found = {}
    for line in lines:
        name, _, value = line.partition(":")
        found[name.lower()] = value.strip()
    is_plain = (
        broken
        and _STATUS.match(status)
        and len(found) == len(lines)
        and found.get("content-length") == str(len(body))
        and "transfer-encoding" not in found
    )
    return Answer(int(status[9:12]), found, body) if is_plain else None


class _ReadAhead(io.RawIOBase):
    """A socket whose first piece has been read already."""

    def __init__(self, connected: socket.socket, begun: bytes) -> None:
        self._connected, self._begun = connected, begun
        self._is_empty, self.has_head = not begun, False
        # One reader for all answers, as it may have read ahead.
        self._buffered = io.BufferedReader(self)

    def makefile(self, _: str) -> "io.BufferedReader[Any]":
        return self._buffered

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._begun:
            count = self._connected.recv_into(buffer)
            if not count and not self._is_empty and not self.has_head:
                # The standard library would take this early end of the connection for the end of
                # the head, and then read an empty body.
                raise http.client.IncompleteRead(b"")
            return count
        taken, self._begun = self._begun[: len(buffer)], self._begun[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)
