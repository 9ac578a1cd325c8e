"""The console's HTTP application: its routes, its errors, and the headers of every answer."""

from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

import structlog
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from console.authentication import LINK, SignedOut
from console.embedding import FRAMED_BY, Embedding, ReadsLinks
from console.pages.plain_pages import notice
from observe.settings import ConsoleSettings
from shared.runtime.control_client import RefusedError
from shared.runtime.hosts import FORWARDED, is_ours
from shared.runtime.setup_error import OperatorError

log = structlog.get_logger()

# Nothing but our own files runs or loads.
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors "
)
_EVERY_ANSWER = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-store",
}
# The smallest size would take many times as long, to save a few hundredths.
_PACKED_AT = 5
_STATIC = Path(__file__).with_name("static")
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_TITLES = {
    403: "Refused",
    404: "Not here",
    405: "Not so",
    412: "Changed",
    500: "Failed",
    503: "Not now",
}


def create_app(
    routes: Iterable[Route], *, settings: ConsoleSettings, read_link: ReadsLinks
) -> ASGIApp:
    """Put the parts together."""
    app = Starlette(
        routes=[
            *routes,
            *(_static(path) for path in _STATIC.iterdir() if path.suffix in _TYPES),
        ],
        exception_handlers={
            SignedOut: _to_sign_in,
            HTTPException: _refuse,
            OperatorError: _tell,
            Exception: _fail,
        },
    )
    # Compression is safe: our cookie comes with no request from a page of another site, so nobody
    # can probe an answer's length with guesses of a secret; users of a link have all of it anyway.
    shown = Embedding(app, read_link)
    return _Guard(GZipMiddleware(shown, compresslevel=_PACKED_AT), settings)


class _Guard:
    """Answers only to our own names, and puts our headers on every answer."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings) -> None:
        self._app = app
        self._hosts = settings.host_names
        self._is_open = not settings.asks_for_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _EVERY_ANSWER.items():
                    headers.setdefault(name, value)
                framed_by = " ".join(sorted(scope.get(FRAMED_BY, ())))
                headers["Content-Security-Policy"] = _CONTENT_SECURITY_POLICY + (
                    framed_by or "'none'"
                )
                if not framed_by:
                    headers["X-Frame-Options"] = "DENY"
            await send(message)

        refusal = self._refusal(Headers(scope=scope))
        await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, headers: Headers) -> Response | None:
        if not is_ours(headers.get("host", ""), self._hosts):
            return PlainTextResponse(
                "This console does not answer to that name: call it by 127.0.0.1 or localhost, or"
                " list the name in HIFI_OBSERVE_CONSOLE_HOSTS.\n",
                status_code=421,
            )
        if self._is_open and not FORWARDED.isdisjoint(name for name, _ in headers.raw):
            return PlainTextResponse(
                "This request came through a proxy, and this console asks nobody for a key: set"
                " HIFI_OBSERVE_CONSOLE_AUTH=keys.\n",
                status_code=403,
            )
        return None


def _static(path: Path) -> Route:
    """One of our own files, read once: nothing in a request names a path."""
    content, media_type = path.read_bytes(), _TYPES[path.suffix]

    async def serve(_: Request) -> Response:
        # Checked again each time: after an upgrade old scripts must not meet new pages.
        return Response(content, media_type=media_type, headers={"Cache-Control": "no-cache"})

    return Route(f"/static/{path.name}", serve, methods=["GET"])


async def _to_sign_in(request: Request, _: Exception) -> Response:
    if request.url.path.startswith(("/api/", "/live")):
        return PlainTextResponse(
            "Sign in, or send a key: Authorization: Bearer hifisk_...\n",
            status_code=401,
            headers={"WWW-Authenticate": 'Bearer realm="hifi"'},
        )
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/sign-in?next={quote(asked, safe='')}", status_code=303)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for nothing else"
    if request.url.path.startswith("/api/"):
        return PlainTextResponse(f"{error.detail}\n", status_code=error.status_code)
    # Starlette's own words for a path without a route.
    says = "No such page." if error.detail == "Not Found" else error.detail
    return _notice(request, error.status_code, says)


async def _tell(request: Request, error: Exception) -> Response:
    """Answer that Kafka or the gateway is away, or that the gateway refuses it, in a sentence."""
    status, says = HTTPStatus.SERVICE_UNAVAILABLE.value, str(error)
    if isinstance(error, RefusedError):
        status, says = error.status, error.detail
        if status == HTTPStatus.UNAUTHORIZED:
            says += (
                " If the gateway asks for keys, set HIFI_OBSERVE_CONSOLE_AUTH=keys here; if people"
                " sign in with a provider, set HIFI_GATEWAY_JWT_* there (docs/console.md)."
            )
    return _notice(request, status, says)


async def _fail(request: Request, error: Exception) -> Response:
    log.error("console.failed", path=request.url.path, exc_info=error)
    return _notice(request, 500, "The console has met a mistake of its own; its log has the story.")


def _notice(request: Request, status: int, says: str) -> Response:
    title = _TITLES.get(status, "Not possible")
    page = notice(title, says, has_link=LINK in request.scope)
    return HTMLResponse(page, status_code=status)
