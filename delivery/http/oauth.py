"""Gets the OAuth2 token that goes with a request: fetched once, kept until shortly before its end.

Client credentials (RFC 6749, 4.4). However many requests wait for a token, only one fetch runs.
After a failed fetch the next one waits 5 s: more requests do not help a service that is down.
A failed fetch is not a failure of the destination, so the events wait and no attempt is charged.
"""

import asyncio
import base64
import json
import math
from collections.abc import Awaitable, Callable
from urllib.parse import quote_plus, urlencode

from delivery.http.connection import ExchangeError, Reply
from shared.config.credentials import OAuth2
from shared.retry.attempt import Failure

# The share of a token's lifetime after which the next one is fetched (clocks and delays differ).
_RENEW_AT = 0.8
# The lifetime of a token if the service gives none (RFC 6749 only recommends that it does).
_LIFE_S = 300.0
# A token is replaced after a day, even if the service gives it a longer lifetime.
_LIFE_S_MAX = 86_400.0
_OK = 200
# The wait after a failed fetch; the next micro-batch of parked events tries again.
_PAUSE_S = 5.0

# Sends headers and a body to the token service.
Fetch = Callable[[dict[str, str], bytes], Awaitable[Reply]]


class TokenSource:
    """The tokens for one destination, as long as its settings stay the same."""

    def __init__(self, auth: OAuth2, client_secret: str, fetch: Fetch) -> None:
        credentials = f"{quote_plus(auth.client_id)}:{quote_plus(client_secret)}"
        self._headers = {
            "content-type": "application/x-www-form-urlencoded",
            "accept": "application/json",
            "authorization": "Basic " + base64.b64encode(credentials.encode()).decode(),
        }
        form = {"grant_type": "client_credentials"} | ({"scope": auth.scope} if auth.scope else {})
        self._body = urlencode(form).encode()
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
        if self._failed is not None and now_s < self._failed[0] + _PAUSE_S:
            raise ExchangeError(Failure.TOKEN_UNAVAILABLE, self._failed[1])
        try:
            reply = await self._fetch(self._headers, self._body)
            token, life_s = _read(reply)
        except (ExchangeError, ValueError) as error:
            reason = error.failure.value if isinstance(error, ExchangeError) else str(error)
            self._failed = (now_s, f"no token: {reason}")
            raise ExchangeError(Failure.TOKEN_UNAVAILABLE, self._failed[1]) from error
        self._token, self._failed = token, None
        self._renew_at_s = now_s + life_s * _RENEW_AT


def _read(reply: Reply) -> tuple[str, float]:
    """Return the token in the service's answer, and its lifetime; ValueError if there is none."""
    if reply.status != _OK:
        raise ValueError(f"the token service answers {reply.status}")
    try:
        fields = json.loads(reply.body)
        token, life_s = fields["access_token"], float(fields.get("expires_in") or _LIFE_S)
    except (
        ArithmeticError,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise ValueError("the token service's answer has no token") from error
    is_text = isinstance(token, str) and token.isascii() and token.isprintable()
    if not is_text or not token or math.isnan(life_s):
        raise ValueError("the token service's answer has no valid token")
    return token, min(max(life_s, 1.0), _LIFE_S_MAX)
