"""Stands before a Kafka as Amazon MSK with IAM does: checks each login, and ends it after a time.

The Kafka behind it asks for no login. Python's clients come with OAUTHBEARER, Java's with
AWS_MSK_IAM. A request after the end of a login closes the connection, as with Kafka.
"""

import base64
import datetime as dt
import json
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any, BinaryIO
from urllib.parse import parse_qsl, urlsplit

from aiokafka.protocol.types import (
    Array,
    Bytes,
    CompactBytes,
    CompactString,
    Int16,
    Int32,
    Int64,
    String,
    TaggedFields,
)

from shared.runtime.clock import now_ms
from tests.support.kafka.msk_signature import SIGNATURE, signature_of

_HOST = "127.0.0.1"
_SIZE = struct.Struct(">i")
# The kinds of Kafka's requests that the door knows; it passes all others on.
_HANDSHAKE, _API_VERSIONS, _AUTHENTICATE = 17, 18, 36
_MECHANISMS = ["OAUTHBEARER", "AWS_MSK_IAM"]
_UNSUPPORTED_MECHANISM, _AUTHENTICATION_FAILED = 33, 58
# From this version on, requests to authenticate have compact fields.
_COMPACT = 2
_PARAMETERS = (
    "Action",
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-Security-Token",
    "X-Amz-SignedHeaders",
    SIGNATURE,
)
_VALID_S_MAX = 900


class MskDoor(ThreadingTCPServer):
    """Lets callers with one AWS identity pass to a broker."""

    allow_reuse_address = daemon_threads = True

    def __init__(
        self, port: int, *, broker_port: int, pem: Path, identity: tuple[str, str], login_s: float
    ) -> None:
        self.broker_port, self.login_s = broker_port, login_s
        self._key, self._secret = identity
        # The logins of each mechanism.
        self.logins: Counter[str] = Counter()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(pem)
        super().__init__((_HOST, port), _Caller)

    @contextmanager
    def open(self) -> Iterator["MskDoor"]:
        thread = threading.Thread(target=self.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            self.server_close()
            thread.join()

    def says(self, mechanism: str, message: bytes) -> bytes | None:
        """Return the answer to a login; None if it is refused."""
        if mechanism == "OAUTHBEARER":
            token = message.partition(b"auth=Bearer ")[2].partition(b"\x01")[0]
            address = urlsplit(base64.urlsafe_b64decode(token + b"==").decode())
            query, host = dict(parse_qsl(address.query)), address.netloc
            region = query["X-Amz-Credential"].split("/")[2]
            is_ours, answer = host == f"kafka.{region}.amazonaws.com", b""
            # It is appended to the signed address.
            del query["User-Agent"]
        else:
            members = json.loads(message)
            query = {each: members[each.lower()] for each in _PARAMETERS if each.lower() in members}
            host, is_ours = members["host"], members["version"] == "2020_10_22"
            answer = b'{"version": "2020_10_22", "request-id": "1"}'
        if not (is_ours and self._is_good(query, host)):
            return None
        self.logins[mechanism] += 1
        return answer

    def _is_good(self, query: Mapping[str, str], host: str) -> bool:
        key, _, _, *scope = query["X-Amz-Credential"].split("/")
        signed = dt.datetime.strptime(query["X-Amz-Date"] + "+0000", "%Y%m%dT%H%M%SZ%z")
        age_s, valid_s = now_ms() / 1000 - signed.timestamp(), int(query["X-Amz-Expires"])
        return (
            (key, scope) == (self._key, ["kafka-cluster", "aws4_request"])
            and query["Action"] == "kafka-cluster:Connect"
            and valid_s <= _VALID_S_MAX
            and -1 <= age_s < valid_s
            and query[SIGNATURE] == signature_of(query, host=host, secret=self._secret)
        )


class _Caller(BaseRequestHandler):
    """One connection: its requests are answered one after the other, as by a broker."""

    server: MskDoor
    _mechanism = ""
    _until_s = 0.0

    def handle(self) -> None:
        with (
            suppress(OSError),
            self.server.context.wrap_socket(self.request, server_side=True) as caller,
            socket.create_connection((_HOST, self.server.broker_port)) as broker,
            caller.makefile("rb") as asked,
            broker.makefile("rb") as answered,
        ):
            while request := _frame(asked):
                answer = self._login(request)
                if answer is None:
                    kind = Int16.decode(BytesIO(request))
                    if kind != _API_VERSIONS and time.monotonic() > self._until_s:
                        return
                    broker.sendall(_SIZE.pack(len(request)) + request)
                    answer = _frame(answered)
                caller.sendall(_SIZE.pack(len(answer)) + answer)

    def _login(self, request: bytes) -> bytes | None:
        """Return the answer to a request of a login; None for other requests."""
        data = BytesIO(request)
        kind, version, number = Int16.decode(data), Int16.decode(data), Int32.decode(data)
        if kind == _HANDSHAKE:
            String("utf-8").decode(data)
            self._mechanism = str(String("utf-8").decode(data))
            code = 0 if self._mechanism in _MECHANISMS else _UNSUPPORTED_MECHANISM
            named = Array(String("utf-8")).encode(_MECHANISMS)
            return bytes(Int32.encode(number) + Int16.encode(code) + named)
        if kind != _AUTHENTICATE:
            return None
        is_compact = version >= _COMPACT
        String("utf-8").decode(data)
        if is_compact:
            TaggedFields.decode(data)
        message = (CompactBytes if is_compact else Bytes).decode(data) or b""
        said = self.server.says(self._mechanism, message)
        if said is not None:
            self._until_s = time.monotonic() + self.server.login_s
        return _authenticated(number, said, version, round(self.server.login_s * 1000))


def _authenticated(number: int, said: bytes | None, version: int, login_ms: int) -> bytes:
    """Return the answer to a login in a version's format."""
    is_compact = version >= _COMPACT
    tags = TaggedFields.encode({}) if is_compact else b""
    text: Any = CompactString() if is_compact else String("utf-8")
    octets = CompactBytes if is_compact else Bytes
    code, why = (_AUTHENTICATION_FAILED, "Access denied") if said is None else (0, None)
    life = Int64.encode(login_ms) if version else b""
    return bytes(
        Int32.encode(number)
        + tags
        + Int16.encode(code)
        + text.encode(why)
        + octets.encode(said or b"")
        + life
        + tags
    )


def _frame(stream: BinaryIO) -> bytes:
    """Return the next request or answer; nothing at the end."""
    size = stream.read(_SIZE.size)
    return stream.read(*_SIZE.unpack(size)) if len(size) == _SIZE.size else b""
