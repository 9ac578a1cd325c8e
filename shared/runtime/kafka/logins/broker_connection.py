"""One connection to a broker, for all of our clients: it ends cleanly, and keeps its login alive.

Importing this module replaces aiokafka's class, because its clients make connections themselves.
"""

import asyncio
import socket
import struct
from typing import Any

import structlog
from aiokafka import conn
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.protocol.admin import SaslAuthenticateRequest

from shared.runtime.kafka.logins.tokens import NoTokenError, TokenLogin

log = structlog.get_logger()

# SO_LINGER: on, for 0 s.
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
# The share of a login's lifetime after which the next one begins: requests under way end first.
_RENEW_AT = 0.8
# The wait after the token service gave no token; it pauses as long itself.
_AGAIN_S = 5.0


class _BrokerConnection(conn.AIOKafkaConnection):  # type: ignore[misc] # it has no annotations
    """A connection of any client."""

    # How long the broker accepts the login; 0: as long as the connection.
    _login_ms = 0
    # Set while the connection logs in again. Other requests wait, because a broker accepts none
    # between the two requests of a login.
    _renewal: asyncio.Task[None] | None = None
    # The same task from its start on: the loop keeps no reference to it.
    _renewing: asyncio.Task[None] | None = None
    _timer: asyncio.TimerHandle | None = None

    def send(self, request: Any, expect_response: bool = True) -> Any:  # noqa: FBT001, FBT002 - as given
        """Send like aiokafka, but raise an error of uvloop as one of Kafka's.

        uvloop raises RuntimeError for a socket that was reset a moment ago, before the reader of
        the connection has noticed. aiokafka does not expect this error: its task that learns the
        leaders ended, and then its client waited forever.
        """
        if self._renewal is not None and asyncio.current_task() is not self._renewal:
            return self._send_later(request, expect_response)
        try:
            answer = super().send(request, expect_response)
        except RuntimeError as error:
            self.close(reason=conn.CloseReason.CONNECTION_BROKEN, exc=error)
            raise KafkaConnectionError(f"{self!r} is broken: {error}") from error
        return self._login(answer) if isinstance(request, SaslAuthenticateRequest) else answer

    def close(self, reason: Any = None, exc: Exception | None = None) -> Any:
        """Close like aiokafka, but discard the unsent bytes of a request that has timed out.

        Otherwise the kernel would still send them when the broker wakes, long after the request
        was reported as failed.
        """
        if self._timer is not None:
            self._timer.cancel()
        if reason is conn.CloseReason.CONNECTION_TIMEOUT and (writer := self._writer) is not None:
            raw = writer.get_extra_info("socket")
            if raw.fileno() >= 0:
                # A reset also discards the kernel's buffer.
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
                writer.transport.abort()
        return super().close(reason, exc)

    def authenticator_oauth(self) -> TokenLogin:
        return TokenLogin(self._sasl_oauth_token_provider)

    async def _do_sasl_handshake(self) -> None:
        """Log in, and plan the next login, if the broker says when this one ends (KIP-368)."""
        await super()._do_sasl_handshake()
        if self._login_ms > 0:
            self._timer = self._loop.call_later(self._login_ms / 1000 * _RENEW_AT, self._renew)

    async def _login(self, answer: Any) -> Any:
        response = await answer
        # Brokers before Kafka 2.2 do not say how long a login lasts.
        self._login_ms = getattr(response, "session_lifetime_ms", 0)
        return response

    def _renew(self) -> None:
        self._renewing = self._loop.create_task(self._log_in_again())

    async def _log_in_again(self) -> None:
        where = f"{self.host}:{self.port}"
        if (service := self._sasl_oauth_token_provider) is not None:
            # Requests continue while the service makes a token, and as long as the login lasts.
            try:
                await service.token()
            except NoTokenError as error:
                log.warning("kafka.login_not_renewed", broker=where, why=str(error))
                if self.connected():
                    self._timer = self._loop.call_later(_AGAIN_S, self._renew)
                return
        if not self.connected():
            return
        self._renewal = asyncio.current_task()
        try:
            await self._do_sasl_handshake()
        except (KafkaError, OSError, TimeoutError) as error:
            # Requests that wait find a closed connection, and their client makes a new one.
            log.warning("kafka.login_not_renewed", broker=where, why=str(error))
            self.close(reason=conn.CloseReason.AUTH_FAILURE, exc=error)
        finally:
            self._renewal = None

    async def _send_later(self, request: Any, expect_response: bool) -> Any:  # noqa: FBT001 - as given
        """Send once the login is renewed; requests keep their order."""
        while (renewal := self._renewal) is not None:
            await asyncio.wait([renewal])
        return await self.send(request, expect_response)


conn.AIOKafkaConnection = _BrokerConnection
