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

# Browsers run and load only our own files.
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
# The highest level takes many times as long and saves only a few per cent.
_PACKED_AT = 5
_STATIC = Path(__file__).with_name("static")
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_TITLES = {
    403: "Refused",
    404: "Not found",
    405: "Not allowed",
    412: "Changed meanwhile",
    500: "Failed",
    503: "Not available now",
}


def create_app(
    routes: Iterable[Route], *, settings: ConsoleSettings, read_link: ReadsLinks
) -> ASGIApp:
    """Return the application with all its parts."""
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
    # Compression is safe: requests from pages of other sites never carry our cookie, so nobody can
    # probe an answer's length with guesses of a secret. Users of a link know the link anyway.
    shown = Embedding(app, read_link)
    return _Guard(GZipMiddleware(shown, compresslevel=_PACKED_AT), settings)


class _Guard:
    """Refuses requests under foreign host names, and adds our headers to every answer."""

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
                "This console does not answer to that name. Use 127.0.0.1 or localhost, or add the"
                " name to HIFI_OBSERVE_CONSOLE_HOSTS.\n",
                status_code=421,
            )
        if self._is_open and not FORWARDED.isdisjoint(name for name, _ in headers.raw):
            return PlainTextResponse(
                "This request came through a proxy, but this console runs without sign-in. Set"
                " HIFI_OBSERVE_CONSOLE_AUTH=keys.\n",
                status_code=403,
            )
        return None


def _static(path: Path) -> Route:
    """Return the route of one of our files, read once: no request can name another path."""
    content, media_type = path.read_bytes(), _TYPES[path.suffix]

    async def serve(_: Request) -> Response:
        # The browser must check each time: after an upgrade old scripts must not meet new pages.
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
    # Starlette's text for a path without a route.
    says = "No such page." if error.detail == "Not Found" else error.detail
    return _notice(request, error.status_code, says)


async def _tell(request: Request, error: Exception) -> Response:
    """Answer that Kafka or the gateway is unavailable, or that the gateway refuses the request."""
    status, says = HTTPStatus.SERVICE_UNAVAILABLE.value, str(error)
    if isinstance(error, RefusedError):
        status, says = error.status, error.detail
        if status == HTTPStatus.UNAUTHORIZED:
            says += (
                " If the gateway asks for keys, set HIFI_OBSERVE_CONSOLE_AUTH=keys for the console."
                " If people sign in with a provider, set HIFI_GATEWAY_JWT_* for the gateway"
                " (docs/console.md)."
            )
    return _notice(request, status, says)


async def _fail(request: Request, error: Exception) -> Response:
    log.error("console.failed", path=request.url.path, exc_info=error)
    return _notice(request, 500, "The console has failed because of a bug. Its log says more.")


def _notice(request: Request, status: int, says: str) -> Response:
    title = _TITLES.get(status, "Not possible")
    page = notice(title, says, has_link=LINK in request.scope)
    return HTMLResponse(page, status_code=status)
