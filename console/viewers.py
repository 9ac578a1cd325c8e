"""Identifies the viewer: the key or token in the session cookie, and its permissions.

The cookie contains the key itself, sealed with a secret of the console, so that nobody can read it
there. The key is looked up at every request, so a key that is revoked or expires ends its sessions
at once. A token is verified at sign-in, and the session ends when it expires. The server stores
nothing.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.config.access import DEFAULT_TENANT, SCOPES, read_text
from shared.config.configuration import Configuration
from shared.event.times import HOUR_MS
from shared.runtime.secret_box import SecretBox, SecretUnavailableError

# A working day: people who come back tomorrow sign in again.
SESSION_MS = 12 * HOUR_MS
_OWNER = "console session"


@dataclass(frozen=True, slots=True)
class Person:
    """A person that an OpenID provider vouches for, with a token."""

    issuer: str
    subject: str
    tenant: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Session:
    """The cookie's content; before sign-in, only the data that the CSRF token of forms needs."""

    nonce: str
    until_ms: int
    # The credential for the gateway: an API key, or the token of a person.
    credential: str = field(default="", repr=False)
    person: Person | None = None


@dataclass(frozen=True, slots=True)
class Viewer:
    """The person who looks, and their permissions."""

    key_id: str
    scopes: frozenset[str]
    # None in a console without sign-in: the viewer sees every tenant.
    tenant: str | None = None
    streams: frozenset[str] = frozenset()
    # The viewer uses a link, which somebody with the key has created.
    has_link: bool = False

    def sees(self, stream: str, *, tenant: str) -> bool:
        is_ours = self.tenant is None or tenant == self.tenant
        return is_ours and (not self.streams or stream in self.streams)

    def sees_tables(self, tenant: str) -> bool:
        """Whether to show a tenant's tables: not to a key for only some streams."""
        return self.tenant in {None, tenant} and not self.streams

    @property
    def may_change(self) -> bool:
        """Whether the viewer may change things, redrive, and read the content of events."""
        return "admin" in self.scopes

    @property
    def is_operator(self) -> bool:
        """Whether the viewer runs Hifi: an admin of the default tenant, as for the gateway."""
        return self.may_change and self.tenant in {None, DEFAULT_TENANT} and not self.streams


ANYBODY = Viewer(key_id="", scopes=SCOPES)


class Cookies:
    """Seals and opens session cookies with one secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        key = hashlib.sha256(b"session:" + secret).digest()
        self._box = SecretBox([base64.urlsafe_b64encode(key).decode()])

    def write(self, session: Session) -> str:
        fields: list[Any] = [session.nonce, session.until_ms, session.credential]
        if session.person is not None:
            person = session.person
            fields += [person.issuer, person.subject, person.tenant, person.scopes]
        return self.seal(fields, owner=_OWNER)

    def read(self, cookie: str | None, *, now_ms: int) -> Session | None:
        """Return the session if we have sealed it and it has not expired."""
        fields = self.unseal(cookie, owner=_OWNER)
        if fields is None:
            return None
        nonce, until_ms, credential, *claims = fields
        person = None
        if claims:
            issuer, subject, tenant, scopes = claims
            person = Person(issuer, subject, tenant, tuple(scopes))
        session = Session(nonce, until_ms, credential, person)
        return session if now_ms < until_ms else None

    def seal(self, fields: Sequence[Any], *, owner: str) -> str:
        return self._box.seal(json.dumps(fields), owner=owner)

    def unseal(self, text: str | None, *, owner: str) -> list[Any] | None:
        """Return the fields if we have sealed them for this owner."""
        try:
            fields: list[Any] = json.loads(self._box.unseal(text or "", owner=owner))
        except SecretUnavailableError:
            return None
        return fields

    def csrf(self, session: Session) -> str:
        return hmac.new(self._secret, f"csrf:{session.nonce}".encode(), hashlib.sha256).hexdigest()

    def is_csrf(self, session: Session, given: str) -> bool:
        return hmac.compare_digest(self.csrf(session).encode(), given.encode())


def viewer_of(api_key: str, configuration: Configuration, *, now_ms: int) -> Viewer | str:
    """Return the viewer with this key, or the reason why the key is refused now."""
    shown = read_text(api_key)
    if shown is None:
        return "This is not a complete key. Copy it again, from hifisk_ to its end."
    key = configuration.keys.get(shown.key_id)
    if key is None or key.secret_of(shown) is None or not key.is_live(now_ms):
        return "This key does not exist (any more), or it has expired."
    if "read" not in key.scopes and "admin" not in key.scopes:
        return "This key can only write. The console needs a key with the scope read or admin."
    return Viewer(key.id, key.scopes, key.tenant, key.streams)
