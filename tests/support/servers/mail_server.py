"""A real mail server for tests: it keeps accepted mail, and refuses or waits as a test says."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTP as MAIL_POLICY
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from shared.runtime.channels.mail import MailServer

SENDER = "hifi@hifi.example"


@dataclass
class TakenMail:
    """One mail in the server's form."""

    to: list[str]
    mail: EmailMessage


@dataclass
class MailBox:
    """The accepted mail, and the server's behaviour."""

    taken: list[TakenMail] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    # The server's wait before it answers to a sender.
    delay_s: float = 0.0
    # The server's wait before it answers to each of these recipients.
    slow_to: dict[str, float] = field(default_factory=dict)
    logins: list[tuple[bytes, bytes]] = field(default_factory=list)
    port: int = 0

    def server(self, **settings: Any) -> MailServer:
        plain = MailServer("127.0.0.1", self.port, "off", SENDER)
        return replace(plain, **settings)

    # The names that aiosmtpd calls.
    async def handle_MAIL(  # noqa: N802
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        del server, session, options
        await asyncio.sleep(self.delay_s)
        envelope.mail_from = address
        return "250 OK"

    async def handle_RCPT(  # noqa: N802
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        del server, session, options
        await asyncio.sleep(self.slow_to.get(address, 0.0))
        if address in self.refused:
            return "550 nobody of that name on mail-7.internal"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        del server, session
        mail = message_from_bytes(envelope.content, EmailMessage, policy=MAIL_POLICY)
        self.taken.append(TakenMail(list(envelope.rcpt_tos), mail))
        return "250 OK"

    def login(self, _: Any, __: Any, ___: Any, ____: Any, given: Any) -> AuthResult:
        assert isinstance(given, LoginPassword)
        self.logins.append((given.login, given.password))
        return AuthResult(success=given.password == b"hunter2", handled=False)


@contextmanager
def mail_server(pair: tuple[Path, Path] | None = None) -> Iterator[MailBox]:
    """Run a mail server; with a certificate and its key it requires STARTTLS and a login."""
    box = MailBox()
    more: dict[str, Any] = {}
    if pair is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*pair)
        more = {"require_starttls": True, "tls_context": context}
        more |= {"authenticator": box.login, "auth_required": True}
    with socket.create_server(("127.0.0.1", 0)) as free:
        box.port = free.getsockname()[1]
    controller = Controller(box, hostname="127.0.0.1", port=box.port, **more)
    controller.start()
    try:
        yield box
    finally:
        controller.stop()
