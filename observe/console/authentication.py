"""Identifies who sends a request by its session, and refuses posts from other pages."""

import secrets
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from observe.console.hosts import may_post
from observe.console.parts.layout import Around
from observe.console.viewers import (
    ANYBODY,
    NONCE_BYTES,
    SESSION_MS,
    Cookies,
    Session,
    Viewer,
    viewer_of,
)
from shared.config.configuration import Configuration
from shared.event.times import MINUTE_MS

COOKIE = "hifi-console"
# No form of ours is longer; a key has 160 characters at most.
_FORM_BYTES_MAX = 16_384
# Nobody mistypes a key more often; guessing one is hopeless at any rate.
_FAILURES_PER_MINUTE_MAX = 20


class KeySource(Protocol):
    """Where the newest keys are; shared.runtime's ConfigFeed in a running process."""

    @property
    def configuration(self) -> Configuration: ...


class SignedOut(Exception):  # noqa: N818 - a state, no error
    """There is no session, or its key is gone."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One request: who looks, in which session."""

    viewer: Viewer
    session: Session
    around: Around
    # A cookie that the answer must set.
    new_cookie: str = ""


class Authentication:
    """`is_open`: nobody is asked for a key."""

    def __init__(
        self,
        config: KeySource,
        *,
        is_open: bool,
        secret: bytes,
        is_https: bool,
        now_ms: Callable[[], int],
    ) -> None:
        self.is_open = is_open
        self._config = config
        self._cookies = Cookies(secret)
        self._is_https = is_https
        self._now_ms = now_ms
        self._failures_ms: deque[int] = deque(maxlen=_FAILURES_PER_MINUTE_MAX)

    def identify(self, request: Request) -> Identity:
        """Who looks; SignedOut when we do not know."""
        session, new_cookie = self.stranger(request)
        if self.is_open:
            return Identity(ANYBODY, session, self._around(session, ANYBODY), new_cookie)
        viewer = viewer_of(session.api_key, self._config.configuration, now_ms=self._now_ms())
        if isinstance(viewer, str):
            raise SignedOut
        return Identity(viewer, session, self._around(session, viewer))

    def identify_program(self, request: Request) -> Identity:
        """As `identify`; a program may send its key instead of a cookie."""
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        if self.is_open or scheme.lower() != "bearer":
            return self.identify(request)
        viewer = self._checked_viewer(text.strip())
        session = self._blank(self._now_ms())
        return Identity(viewer, session, self._around(session, viewer))

    def stranger(self, request: Request) -> tuple[Session, str]:
        """The session, whoever it is of, and the cookie that must be set if it is a new one."""
        now_ms = self._now_ms()
        session = self._cookies.read(request.cookies.get(COOKIE), now_ms=now_ms)
        if session is not None:
            return session, ""
        session = self._blank(now_ms)
        return session, self._cookies.write(session)

    def csrf(self, session: Session) -> str:
        return self._cookies.csrf(session)

    def try_key(self, text: str) -> str:
        """The cookie of a new session; HTTPException with the reason when there is none."""
        self._checked_viewer(text.strip())
        return self._cookies.write(replace(self._blank(self._now_ms()), api_key=text.strip()))

    def check_post(self, request: Request, session: Session, fields: Mapping[str, str]) -> None:
        """Refuse a POST that does not come from a page of ours in this very session."""
        comes_from_us = may_post(
            host=request.headers.get("host", ""),
            origin=request.headers.get("origin"),
            fetch_site=request.headers.get("sec-fetch-site"),
        )
        if not comes_from_us or not self._cookies.is_csrf(session, fields.get("csrf", "")):
            raise HTTPException(
                403, "This form is not from your session: go back, load the page, and try again."
            )

    def set_cookie(self, response: Response, cookie: str) -> None:
        """Only for us (HttpOnly), only from our own pages (SameSite=Strict)."""
        response.set_cookie(
            COOKIE,
            cookie,
            max_age=SESSION_MS // 1000,
            path="/",
            httponly=True,
            samesite="strict",
            secure=self._is_https,
        )

    def _checked_viewer(self, api_key: str) -> Viewer:
        now_ms = self._now_ms()
        if (
            len(self._failures_ms) == _FAILURES_PER_MINUTE_MAX
            and now_ms - self._failures_ms[0] < MINUTE_MS
        ):
            raise HTTPException(429, "Too many wrong keys in a minute: wait for one.")
        viewer = viewer_of(api_key, self._config.configuration, now_ms=now_ms)
        if isinstance(viewer, str):
            self._failures_ms.append(now_ms)
            raise HTTPException(401, viewer)
        return viewer

    def _blank(self, now_ms: int) -> Session:
        return Session(secrets.token_hex(NONCE_BYTES), now_ms + SESSION_MS)

    def _around(self, session: Session, viewer: Viewer) -> Around:
        return Around(self._cookies.csrf(session), viewer.key_id, self.is_open)


def require_admin(viewer: Viewer) -> None:
    if not viewer.may_change:
        raise HTTPException(403, "This needs a key with the scope admin.")


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form; HTTPException when it is none of ours."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _FORM_BYTES_MAX:
            raise HTTPException(413, "This form is too long.")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=50))
    except ValueError as error:
        raise HTTPException(400, "This is no form of ours.") from error


def local_path(path: str) -> str:
    """Where to go after signing in: a path of ours, or the overview."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_ours and not path.startswith("/sign-") else "/"
