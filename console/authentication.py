"""Identifies a request's sender by its session or link, and refuses posts from other pages."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from console.parts.layout import PageFrame
from console.viewers import (
    ANYBODY,
    SESSION_MS,
    Cookies,
    Person,
    Session,
    Viewer,
    viewer_of,
)
from observe.settings import ConsoleSettings
from shared.config.access import ViewLink
from shared.config.configuration import Configuration
from shared.runtime.clock import now_ms
from shared.runtime.hosts import may_post
from shared.runtime.tokens.links import LinkError, read_link

COOKIE = "hifi-console"
# The key in a request's scope under which the link at the start of its path is stored.
LINK = "hifi.link"
_SECRET_BYTES, _NONCE_BYTES = 32, 16


class SignedOut(Exception):  # noqa: N818 - a state, no error
    """There is no session, or its key is no longer valid."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The viewer and the session of one request."""

    viewer: Viewer
    session: Session
    around: PageFrame
    # A cookie that the answer must set.
    new_cookie: str = ""


class Authentication:
    """Identifies viewers by the key in a session's cookie, or programs by the key they send."""

    def __init__(
        self, configuration: Callable[[], Configuration], settings: ConsoleSettings
    ) -> None:
        # True: the console needs no sign-in.
        self.is_open = not settings.asks_for_keys
        # Without a setting each process generates a secret, so that none is on a disk.
        secret = settings.cookie_secret.encode() or secrets.token_bytes(_SECRET_BYTES)
        self.cookies = Cookies(secret)
        self._configuration = configuration
        self.is_https = settings.https or settings.url.startswith("https:")
        # The provider that people can sign in with; empty if there is none.
        self.provider_name = settings.oidc_name if settings.oidc_issuer else ""
        self._issuer = settings.oidc_issuer

    def identify(self, request: Request) -> Identity:
        """Identify the viewer; SignedOut if nobody is signed in."""
        if LINK in request.scope:
            # Only the link counts, even if somebody has signed in as well.
            return self._identity_by(request.scope[LINK])
        session, new_cookie = self.stranger(request)
        viewer = ANYBODY if self.is_open else self._viewer_in(session)
        if isinstance(viewer, str):
            raise SignedOut
        return self._identity(viewer, session, new_cookie)

    def identify_program(self, request: Request) -> Identity:
        """Identify the viewer, as `identify`, or a program by the key in its request."""
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        if self.is_open or LINK in request.scope or scheme.lower() != "bearer":
            return self.identify(request)
        return self._identity(self._checked_viewer(text.strip()), _new_session())

    def read_link(self, text: str) -> ViewLink:
        """Return the content of a link; LinkError with the reason if it is not valid."""
        return read_link(text, self._configuration().keys, now_ms=now_ms())

    def stranger(self, request: Request) -> tuple[Session, str]:
        """Return the session, signed in or not, and the cookie to set if the session is new."""
        session = self.cookies.read(request.cookies.get(COOKIE), now_ms=now_ms())
        if session is not None:
            return session, ""
        session = _new_session()
        return session, self.cookies.write(session)

    def try_key(self, text: str) -> str:
        """Return the cookie of a new session; HTTPException if the key is refused."""
        api_key = text.strip()
        self._checked_viewer(api_key)
        return self.cookies.write(_new_session(api_key))

    def session_of(self, token: str, person: Person, *, until_ms: int) -> str:
        """Return the cookie of a new session for a person whose token was verified."""
        return self.cookies.write(Session(_new_nonce(), until_ms, token, person))

    def check_post(self, request: Request, session: Session, fields: Mapping[str, str]) -> None:
        """Refuse a POST that does not come from a page of ours in the same session."""
        comes_from_us = may_post(
            host=request.headers.get("host", ""),
            origin=request.headers.get("origin"),
            fetch_site=request.headers.get("sec-fetch-site"),
        )
        if not comes_from_us or not self.cookies.is_csrf(session, fields.get("csrf", "")):
            raise HTTPException(
                403, "This form is not from your session. Go back, reload the page, and try again."
            )

    def set_cookie(self, response: Response, cookie: str) -> None:
        """Set a new cookie, closed to scripts (HttpOnly) and other sites (SameSite=Strict)."""
        if cookie:
            response.set_cookie(
                COOKIE,
                cookie,
                max_age=SESSION_MS // 1000,
                path="/",
                httponly=True,
                samesite="strict",
                secure=self.is_https,
            )

    def _checked_viewer(self, api_key: str) -> Viewer:
        # Wrong keys are not counted: nobody can guess the 160 random bits of a key, and a limit
        # would let any stranger lock everybody out.
        viewer = self._viewer_of(api_key)
        if isinstance(viewer, str):
            raise HTTPException(401, viewer)
        return viewer

    def _viewer_in(self, session: Session) -> Viewer | str:
        person = session.person
        if person is None:
            return self._viewer_of(session.credential)
        if person.issuer != self._issuer:
            return "This console no longer trusts that provider."
        return Viewer(person.subject, frozenset(person.scopes), person.tenant)

    def _viewer_of(self, api_key: str) -> Viewer | str:
        return viewer_of(api_key, self._configuration(), now_ms=now_ms())

    def _identity_by(self, text: str) -> Identity:
        try:
            link = self.read_link(text)
        except LinkError as error:
            raise SignedOut from error
        scopes = frozenset({"read"})
        viewer = Viewer(link.key, scopes, link.tenant, link.streams, has_link=True)
        # Pages below a link have no forms that change anything, so they need no CSRF token.
        session = Session("", link.expires_at_ms, text)
        return Identity(viewer, session, PageFrame(csrf="", has_link=True))

    def _identity(self, viewer: Viewer, session: Session, new_cookie: str = "") -> Identity:
        around = PageFrame(self.cookies.csrf(session), viewer.key_id, self.is_open)
        return Identity(viewer, session, around, new_cookie)


def _new_session(api_key: str = "") -> Session:
    return Session(_new_nonce(), now_ms() + SESSION_MS, api_key)


def _new_nonce() -> str:
    return secrets.token_hex(_NONCE_BYTES)


def local_path(path: str) -> str:
    """Return `path` if it is a path of ours to go to after signing in, otherwise the overview's."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_ours and not path.startswith("/sign-") else "/"
