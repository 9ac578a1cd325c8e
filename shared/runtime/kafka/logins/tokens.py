"""Logs in to Kafka with tokens (OAUTHBEARER), by default from a token service.

A process has one source of tokens, which all its connections share: each of their event loops asks
it in a thread, and only one thread at a time gets a new token.
"""

import asyncio
import threading
import time
from abc import abstractmethod
from collections.abc import Mapping

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import SaslAuthenticationFailed

from shared.runtime.http_client import HttpClient, NoHttpAnswerError
from shared.runtime.tokens.client_credentials import (
    PAUSE_S,
    RENEW_AT,
    token_in,
    token_request,
)

# Less than a client waits for its connection.
_TIMEOUT_S = 10.0
_ANSWER_BYTES_MAX = 65_536


class NoTokenError(SaslAuthenticationFailed):  # type: ignore[misc] # aiokafka has no annotations
    """There is no token; the text says why, and what to do."""


class LoginTokens(AbstractTokenProvider):  # type: ignore[misc] # as above
    """Keeps a token until shortly before its end; subclasses get the next one."""

    def __init__(self) -> None:
        self._one = threading.Lock()
        self._token = ""
        self._renew_at_s = 0.0
        # Why there was no token the last time; empty if there was one.
        self._failed = ""

    async def token(self) -> str:
        """Return a token that should be valid; NoTokenError if there is none."""
        return await asyncio.to_thread(self._current)

    def extensions(self) -> Mapping[str, str]:
        """Return what some brokers want to know besides the token, such as a cluster's id."""
        return {}

    @abstractmethod
    def _fetched(self) -> tuple[str, float]:
        """Return a new token and the seconds for which it is good; NoTokenError if none."""

    def _current(self) -> str:
        with self._one:
            if time.monotonic() < self._renew_at_s:
                if self._failed:
                    raise NoTokenError(self._failed)
                return self._token
            try:
                self._token, life_s = self._fetched()
            except NoTokenError as error:
                self._renew_at_s = time.monotonic() + PAUSE_S
                self._failed = str(error.args[0])
                raise
            self._failed = ""
            self._renew_at_s = time.monotonic() + life_s * RENEW_AT
            return self._token


class TokenService(LoginTokens):
    """Gets tokens from a token service for client credentials."""

    def __init__(
        self, url: str, *, client_id: str, secret: str, scope: str, extensions: Mapping[str, str]
    ) -> None:
        super().__init__()
        self.url = url
        self._request = token_request(client_id, secret, scope=scope)
        self._extensions = extensions

    def extensions(self) -> Mapping[str, str]:
        return self._extensions

    def _fetched(self) -> tuple[str, float]:
        headers, body = self._request
        try:
            with HttpClient(self.url, timeout_s=_TIMEOUT_S) as service:
                answer = service.ask(
                    "POST", headers=headers, body=body, bytes_max=_ANSWER_BYTES_MAX
                )
            return token_in(answer.status, answer.content)
        except (NoHttpAnswerError, ValueError) as error:
            raise NoTokenError(
                f"{self.url} gives no token: {error}: check HIFI_KAFKA_TOKEN_URL, HIFI_KAFKA_USER,"
                " HIFI_KAFKA_PASSWORD and HIFI_KAFKA_TOKEN_SCOPE."
            ) from error


class TokenLogin:
    """Sends a token, and lets the broker say why it refuses one (RFC 7628, 3.2.3).

    aiokafka's own takes any answer for a yes: a client with a refused token starts, and its
    requests fail later with errors that do not mention the login.
    """

    def __init__(self, service: LoginTokens) -> None:
        self._service = service
        self._is_sent = False

    async def step(self, answer: bytes | None) -> tuple[bytes, bool] | None:
        """Return the next message and whether it gets an answer; None at the end."""
        if not self._is_sent:
            self._is_sent = True
            token = await self._service.token()
            pairs = [f"auth=Bearer {token}"]
            pairs += [f"{name}={value}" for name, value in self._service.extensions().items()]
            return "\x01".join(["n,,", *pairs, "", ""]).encode(), True
        # An error has a text; after this byte, the broker ends the login with it.
        return (b"\x01", True) if answer else None
