"""Decides who looks: sign-in with an API key, the session cookie, its CSRF token, what it may see.

A session is a signed cookie that names a key; the key itself is looked up at every request, so one
that is revoked or has expired ends its sessions at once. Nothing is kept on the server.
"""

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass

from shared.config.access import SCOPES, read_text
from shared.config.configuration import Configuration
from shared.event.times import HOUR_MS

# A working day: who comes back tomorrow signs in again.
SESSION_MS = 12 * HOUR_MS
NONCE_BYTES = 16
# Of the key's hash, so that a key made anew under the same id does not revive old sessions.
_HASH_CHARS = 16


@dataclass(frozen=True, slots=True)
class Session:
    """What the cookie says. Without a key it only carries the CSRF token of an open console."""

    nonce: str
    until_ms: int
    key_id: str = ""
    hash_start: str = ""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks, and what they may see and do."""

    key_id: str
    scopes: frozenset[str]
    # None: of every tenant, in a console that asks nobody.
    tenant: str | None = None
    streams: frozenset[str] = frozenset()

    def sees(self, stream: str, *, tenant: str) -> bool:
        is_ours = self.tenant is None or tenant == self.tenant
        return is_ours and (not self.streams or stream in self.streams)

    @property
    def may_change(self) -> bool:
        """Re-drive, revoke keys, and see what events say."""
        return "admin" in self.scopes


ANYBODY = Viewer(key_id="", scopes=SCOPES)


class Cookies:
    """Signs and reads session cookies with one secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def write(self, session: Session) -> str:
        fields = [session.nonce, session.until_ms, session.key_id, session.hash_start]
        body = base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()
        return f"{body}.{self._sign('session', body)}"

    def read(self, cookie: str | None, *, now_ms: int) -> Session | None:
        """The session, if we have signed it and it has not run out."""
        body, _, signature = (cookie or "").partition(".")
        if not hmac.compare_digest(self._sign("session", body).encode(), signature.encode()):
            return None
        nonce, until_ms, key_id, hash_start = json.loads(base64.urlsafe_b64decode(body))
        session = Session(nonce, until_ms, key_id, hash_start)
        return session if now_ms < session.until_ms else None

    def csrf(self, session: Session) -> str:
        return self._sign("csrf", session.nonce)

    def is_csrf(self, session: Session, given: str) -> bool:
        return hmac.compare_digest(self.csrf(session).encode(), given.encode())

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._secret, f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()


def sign_in(text: str, configuration: Configuration, *, nonce: str, now_ms: int) -> Session | str:
    """A session for a key's text, or why there is none."""
    shown = read_text(text.strip())
    if shown is None:
        return "This is no key, or not all of one: copy it again, from hifisk_ to its end."
    key = configuration.keys.get(shown.key_id)
    secret = key.secret_of(shown) if key is not None else None
    if key is None or secret is None or not key.is_live(now_ms):
        return "There is no such key (any more), or it has expired."
    if "read" not in key.scopes and "admin" not in key.scopes:
        return "This key only writes. The console needs one with the scope read or admin."
    return Session(nonce, now_ms + SESSION_MS, key.id, secret.hash[:_HASH_CHARS])


def viewer_of(session: Session, configuration: Configuration, *, now_ms: int) -> Viewer | None:
    """Whose session it is, as the keys are now; None when its key is gone."""
    key = configuration.keys.get(session.key_id)
    if key is None or not key.is_live(now_ms) or not session.hash_start:
        return None
    if not any(secret.hash.startswith(session.hash_start) for secret in key.secrets):
        return None
    if "read" not in key.scopes and "admin" not in key.scopes:
        return None
    return Viewer(key.id, key.scopes, key.tenant, key.streams)
