"""Asks an OpenID provider for its endpoints, its signing keys, and the person behind a code."""

import asyncio
import base64
import hmac
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from observe.settings import ConsoleSettings
from shared.runtime.http_client import HttpAnswer, HttpClient, NoHttpAnswerError
from shared.runtime.setup_error import OperatorError
from shared.runtime.tokens.reading import (
    KeySet,
    TokenError,
    UnknownKeyError,
    read_key_set,
    verify,
)

BACK = "/sign-in/back"
# People wait for these requests, which have their own threads so that other users do not wait.
_TIMEOUT_S, _THREADS, _ASKED_AT_ONCE_MAX = 5.0, 4, 16
_ANSWER_BYTES_MAX = 1_048_576
# Its metadata and keys change rarely, but a withdrawn key must be dropped within this time.
_KEPT_S = 3600.0
# Seconds between requests to a provider that is down, and between requests for an unknown key.
_AGAIN_S = 5.0
_TEXT_MAX = 200


class ProviderError(Exception):
    """The sign-in has failed; the text tells the user the error and its remedy."""


@dataclass(frozen=True, slots=True)
class _About:
    """The provider's metadata."""

    authorization: str
    token: str
    keys: str
    takes_basic: bool


@dataclass(frozen=True, slots=True)
class Proven:
    """A verified token from the provider, and its claims."""

    token: str
    claims: Mapping[str, Any]


class Provider:
    """A client of one OpenID provider."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._issuer, self._client_id = settings.oidc_issuer, settings.oidc_client_id
        self._secret = settings.oidc_client_secret
        self._scope = f"openid {settings.oidc_scope}".strip()
        self._back = settings.url.rstrip("/") + BACK
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="oidc")
        self._asked = 0
        # One sign-in asks the provider, and the others wait for its answer.
        self._lock = asyncio.Lock()
        self._known: tuple[_About, KeySet] | None = None
        self._known_s = self._failed_s = self._keys_s = float("-inf")
        self._failed = ""

    async def door(self, *, state: str, nonce: str, challenge: str) -> str:
        """Return the address to which a browser goes to sign in."""
        about, _ = await self._read()
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self._back,
            "scope": self._scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        joint = "&" if urlsplit(about.authorization).query else "?"
        return f"{about.authorization}{joint}{urlencode(query)}"

    async def redeem(self, code: str, *, verifier: str, nonce: str) -> Proven:
        """Exchange a code for its verified token; ProviderError if the token is not valid."""
        about, keys = await self._read()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._back,
            "code_verifier": verifier,
        }
        headers = {"content-type": "application/x-www-form-urlencoded"}
        if self._secret and about.takes_basic:
            who = f"{quote(self._client_id, safe='')}:{quote(self._secret, safe='')}".encode()
            headers["authorization"] = f"Basic {base64.b64encode(who).decode()}"
        else:
            form |= {"client_id": self._client_id}
            form |= {"client_secret": self._secret} if self._secret else {}
        given = await self._ask("POST", about.token, headers=headers, body=urlencode(form).encode())
        token = given.get("id_token")
        if not isinstance(token, str):
            raise _no_provider("it has sent no ID token")
        try:
            claims = self._verified(token, keys)
        except UnknownKeyError:
            claims = self._verified(token, await self._newer_keys(about, keys), is_last=True)
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise _refused("The token is not valid: it is not for this sign-in (its nonce).")
        is_shared = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", None if is_shared else self._client_id) != self._client_id:
            raise _refused("The token is not valid: it was given to another client (its azp).")
        return Proven(token, claims)

    def _verified(self, token: str, keys: KeySet, *, is_last: bool = False) -> dict[str, Any]:
        audiences, needs = [self._client_id], ["iat", "sub"]
        try:
            return verify(token, keys, issuer=self._issuer, audiences=audiences, needs=needs)
        except TokenError as error:
            if isinstance(error, UnknownKeyError) and not is_last:
                raise
            raise _refused(str(error)) from error

    async def _read(self) -> tuple[_About, KeySet]:
        """Return the provider's metadata and its keys, read within the last _KEPT_S."""
        async with self._lock:
            now_s = monotonic()
            if self._known is not None and now_s - self._known_s < _KEPT_S:
                return self._known
            if now_s - self._failed_s < _AGAIN_S:
                raise ProviderError(self._failed)
            try:
                about = await self._about()
                self._known = about, await self._keys(about)
            except ProviderError as error:
                self._failed_s, self._failed = monotonic(), str(error)
                raise
            self._known_s = monotonic()
            return self._known

    async def _newer_keys(self, about: _About, keys: KeySet) -> KeySet:
        """Return its current keys; fetch them seldom, as anybody can send made-up key ids."""
        async with self._lock:
            if self._known is not None and self._known[1] is not keys:
                return self._known[1]
            if monotonic() - self._keys_s >= _AGAIN_S:
                self._known = about, await self._keys(about)
                return self._known[1]
            return keys

    async def _about(self) -> _About:
        metadata = await self._ask(
            "GET", f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        )
        if metadata.get("issuer") != self._issuer:
            raise _no_provider(f"it calls itself {str(metadata.get('issuer'))[:_TEXT_MAX]!r}")
        ways = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        return _About(
            self._endpoint(metadata, "authorization_endpoint"),
            self._endpoint(metadata, "token_endpoint"),
            self._endpoint(metadata, "jwks_uri"),
            takes_basic=not isinstance(ways, list) or "client_secret_basic" in ways,
        )

    def _endpoint(self, told: Mapping[str, Any], name: str) -> str:
        """Return one of its endpoints; it must be https, or http only if the issuer is."""
        url = told.get(name)
        schemes = {"https", urlsplit(self._issuer).scheme}
        if not isinstance(url, str) or urlsplit(url).scheme not in schemes:
            raise _no_provider(f"its {name} is {str(url)[:_TEXT_MAX]!r}")
        return url

    async def _keys(self, about: _About) -> KeySet:
        self._keys_s = monotonic()
        published = await self._ask("GET", about.keys)
        try:
            return read_key_set(json.dumps(published))
        except ValueError as error:
            raise _no_provider(f"its keys are not valid ({error})") from error

    async def _ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> dict[str, Any]:
        """Return the JSON object of its answer."""
        if self._asked >= _ASKED_AT_ONCE_MAX:
            raise ProviderError("Many people are signing in just now. Try again in a few seconds.")
        self._asked += 1
        try:
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._pool, _answer, method, url, headers, body)
        except (NoHttpAnswerError, OperatorError) as error:
            raise _no_provider(str(error)) from error
        finally:
            self._asked -= 1
        try:
            content = answer.json()
        except ValueError:
            content = None
        if answer.status != HTTPStatus.OK or not isinstance(content, dict):
            reason = content.get("error") if isinstance(content, dict) else None
            where = urlsplit(url).path
            raise _no_provider(
                f"{where} answered {answer.status}"
                + (f", {str(reason)[:_TEXT_MAX]}" if reason else "")
                + (", without JSON" if content is None else "")
            )
        return content


def _answer(
    method: str, url: str, headers: Mapping[str, str] | None, body: bytes | None
) -> HttpAnswer:
    with HttpClient(url, timeout_s=_TIMEOUT_S) as server:
        return server.ask(
            method,
            headers={"accept": "application/json", **(headers or {})},
            body=body,
            bytes_max=_ANSWER_BYTES_MAX,
        )


def _no_provider(says: str) -> ProviderError:
    return ProviderError(
        f"The provider does not work as it should: {says}. Try again. If this persists, ask the"
        " operator of this console to check HIFI_OBSERVE_CONSOLE_OIDC_* and the provider."
    )


def _refused(says: str) -> ProviderError:
    return ProviderError(
        f"{says} Sign in again. If this persists, ask the operator of this console to check"
        " HIFI_OBSERVE_CONSOLE_OIDC_* and the clocks of console and provider."
    )
