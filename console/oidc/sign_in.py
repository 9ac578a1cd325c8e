"""Signs people in with an OpenID provider: sends the browser there, which returns with a code.

A sign-in in progress is in a sealed cookie; the server stores nothing.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import TypeAlias
from urllib.parse import quote

import structlog
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from console.authentication import Authentication, local_path
from console.oidc.provider import BACK, Provider, ProviderError
from console.pages.plain_pages import sign_in_page, signed_in_page
from console.viewers import SESSION_MS, Person
from observe.settings import ConsoleSettings
from shared.event.times import MINUTE_MS
from shared.runtime.clock import now_ms
from shared.runtime.tokens.reading import TokenError, bearer_of

log = structlog.get_logger()

DOOR = "/sign-in/with"
COOKIE = "hifi-console-begun"
_OWNER = "console sign-in"
# Long enough for somebody to find a second factor.
_BEGUN_MS = 10 * MINUTE_MS
_CHANCE_BYTES = 32
# Characters of a cookie's name and value; browsers drop longer ones silently.
_COOKIE_CHARS_MAX = 4_000
# A sign-in in progress: state, nonce, verifier, and the path to go to afterwards.
_Begun: TypeAlias = tuple[str, str, str, str]
_NOT_BEGUN = "This sign-in began in another browser or more than 10 minutes ago. Start again."


class OpenIdSignIn:
    """The sign-in with the provider that the settings name."""

    def __init__(self, authentication: Authentication, settings: ConsoleSettings) -> None:
        self._authentication = authentication
        self._issuer, self._names = settings.oidc_issuer, settings.claim_names
        self._is_https = authentication.is_https
        self._provider = Provider(settings)

    def routes(self) -> list[Route]:
        return [
            Route(DOOR, self.begin, methods=["GET"]),
            Route(BACK, self.come_back, methods=["GET"]),
        ]

    async def begin(self, request: Request) -> Response:
        """Send the browser to the provider."""
        next_path = local_path(request.query_params.get("next", "/"))
        state, nonce, verifier = (secrets.token_urlsafe(_CHANCE_BYTES) for _ in range(3))
        digest = hashlib.sha256(verifier.encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        try:
            door = await self._provider.door(state=state, nonce=nonce, challenge=challenge)
        except ProviderError as error:
            return self._refuse(request, str(error), next_path)
        fields = [now_ms() + _BEGUN_MS, state, nonce, verifier, next_path]
        response = RedirectResponse(door, status_code=303)
        response.set_cookie(
            COOKIE,
            self._authentication.cookies.seal(fields, owner=_OWNER),
            max_age=_BEGUN_MS // 1000,
            path="/sign-in",
            httponly=True,
            # The provider's page leads back here, and browsers would not send a strict cookie then.
            samesite="lax",
            secure=self._is_https,
        )
        return response

    async def come_back(self, request: Request) -> Response:
        """Answer a browser that comes back with a code or with the provider's error."""
        begun, query = self._begun(request), request.query_params
        if begun is None or not hmac.compare_digest(
            query.get("state", "").encode(), begun[0].encode()
        ):
            return self._refuse(request, _NOT_BEGUN, "/", status=HTTPStatus.BAD_REQUEST)
        _, nonce, verifier, next_path = begun
        try:
            cookie = await self._cookie(
                _code_of(query, self._issuer), nonce=nonce, verifier=verifier
            )
        except ProviderError as refusal:
            return self._refuse(request, str(refusal), next_path)
        # Continue from a page of our own: in a redirect that started on the provider's page, the
        # browser would not send the session's cookie.
        onward = quote(next_path, safe=":/%#?=@[]!$&'()*+,;")
        response = HTMLResponse(signed_in_page(onward), headers={"Refresh": f"0; url={onward}"})
        self._authentication.set_cookie(response, cookie)
        response.delete_cookie(COOKIE, path="/sign-in", httponly=True, samesite="lax")
        return response

    async def _cookie(self, code: str, *, nonce: str, verifier: str) -> str:
        """Return the cookie of a new session; ProviderError if nobody can be signed in."""
        proven = await self._provider.redeem(code, verifier=verifier, nonce=nonce)
        try:
            bearer = bearer_of(proven.claims, self._names)
        except TokenError as error:
            raise ProviderError(
                f"{error} Ask the operator of the provider to give you a tenant, or the operator of"
                " this console to name the right claim: HIFI_OBSERVE_CONSOLE_OIDC_TENANT_CLAIM."
            ) from error
        if not bearer.scopes & {"read", "admin"}:
            raise ProviderError(
                f"You have no permissions here: your claim {self._names.scope} has neither"
                f" {self._names.read} nor {self._names.admin}. Ask the operator of the provider for"
                " one of them."
            )
        person = Person(self._issuer, bearer.subject, bearer.tenant, tuple(sorted(bearer.scopes)))
        # The console sends the token to the gateway, so the session must end when the token does.
        until_ms = min(now_ms() + SESSION_MS, int(proven.claims["exp"]) * 1000)
        cookie = self._authentication.session_of(proven.token, person, until_ms=until_ms)
        if len(cookie) > _COOKIE_CHARS_MAX:
            raise ProviderError(
                f"Your token is too long for a cookie ({len(proven.token)} characters). Ask the"
                " operator of the provider to put fewer claims into ID tokens."
            )
        log.info("console.signed_in", subject=bearer.subject, tenant=bearer.tenant)
        return cookie

    def _begun(self, request: Request) -> _Begun | None:
        cookies = self._authentication.cookies
        fields = cookies.unseal(request.cookies.get(COOKIE), owner=_OWNER)
        if fields is None or now_ms() >= fields[0]:
            return None
        _, state, nonce, verifier, next_path = fields
        return state, nonce, verifier, next_path

    def _refuse(
        self, request: Request, says: str, next_path: str, *, status: int = HTTPStatus.BAD_GATEWAY
    ) -> Response:
        log.warning("console.not_signed_in", problem=says)
        authentication = self._authentication
        session, cookie = authentication.stranger(request)
        page = sign_in_page(
            csrf=authentication.cookies.csrf(session),
            next_path=next_path,
            problem=says,
            provider=authentication.provider_name,
        )
        response = HTMLResponse(page, status_code=status)
        authentication.set_cookie(response, cookie)
        response.delete_cookie(COOKIE, path="/sign-in", httponly=True, samesite="lax")
        return response


def _code_of(query: Mapping[str, str], issuer: str) -> str:
    if query.get("iss", issuer) != issuer:
        raise ProviderError("Another provider has answered. Start again.")
    if (error := query.get("error")) is not None:
        raise ProviderError(f"The provider has not signed you in: {error[:100]}. Try again.")
    return query.get("code", "")
