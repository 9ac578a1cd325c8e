"""Gets the OAuth2 token that goes with a request: fetched once, kept until shortly before its end.

Client credentials (RFC 6749, 4.4). However many requests wait for a token, only one fetch runs.
After a failed fetch the next one waits 5 s: more requests do not help a service that is down.
A failed fetch is not a failure of the destination, so the events wait and no attempt is charged.
"""

import asyncio
from collections.abc import Awaitable, Callable

from delivery.http.connection import ExchangeError, Reply
from shared.config.credentials import OAuth2
from shared.retry.attempt import Failure
from shared.runtime.tokens.client_credentials import (
    PAUSE_S,
    RENEW_AT,
    token_in,
    token_request,
)

# Sends headers and a body to the token service.
Fetch = Callable[[dict[str, str], bytes], Awaitable[Reply]]


class TokenSource:
    """The tokens for one destination, as long as its settings stay the same."""

    def __init__(self, auth: OAuth2, client_secret: str, fetch: Fetch) -> None:
        self._request = token_request(auth.client_id, client_secret, scope=auth.scope)
        self._fetch = fetch
        self._one_flight = asyncio.Lock()
        self._token: str | None = None
        self._renew_at_s = 0.0
        self._failed: tuple[float, str] | None = None

    async def token(self) -> str:
        """Return a token that should be valid; ExchangeError if there is none."""
        now_s = asyncio.get_running_loop().time
        if self._token is None or now_s() >= self._renew_at_s:
            async with self._one_flight:
                # Another request may have fetched it while this one waited.
                if self._token is None or now_s() >= self._renew_at_s:
                    await self._renew(now_s())
        assert self._token is not None, "renewed"
        return self._token

    def refuse(self, token: str) -> None:
        """Drop a token that the destination did not take: the next request needs another one."""
        if self._token == token:
            self._token = None

    async def _renew(self, now_s: float) -> None:
        if self._failed is not None and now_s < self._failed[0] + PAUSE_S:
            raise ExchangeError(Failure.TOKEN_UNAVAILABLE, self._failed[1])
        try:
            reply = await self._fetch(*self._request)
            token, life_s = token_in(reply.status, reply.body)
        except (ExchangeError, ValueError) as error:
            reason = error.failure.value if isinstance(error, ExchangeError) else str(error)
            self._failed = (now_s, f"no token: {reason}")
            raise ExchangeError(Failure.TOKEN_UNAVAILABLE, self._failed[1]) from error
        self._token, self._failed = token, None
        self._renew_at_s = now_s + life_s * RENEW_AT
