"""Sends mail through the operator's server, in bounded time and with threads of its own.

Errors leave out the server's own words, which are for its operator.
"""

import asyncio
import contextlib
import smtplib
import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Literal
from weakref import WeakValueDictionary

from shared.event.times import DAY_MS
from shared.runtime.channels.message import Message

# The whole exchange, from connect to the last answer.
WITHIN_S = 20.0
# The most mails under way at once. Each tenant has at most one of them: if its addresses make the
# server slow, it delays no other tenant.
_THREADS = 8


class MailError(Exception):
    """A mail was not taken; the text says why."""


@dataclass(frozen=True, slots=True)
class MailServer:
    """The server that all mail goes through, and our account there."""

    host: str
    port: int
    tls: Literal["starttls", "tls", "off"]
    sender: str
    user: str = ""
    password: str = field(default="", repr=False)

    def connection(self) -> smtplib.SMTP:
        """A connection that is not open yet; it waits up to `WITHIN_S` for each answer."""
        smtp = (
            smtplib.SMTP_SSL(timeout=WITHIN_S, context=ssl.create_default_context())
            if self.tls == "tls"
            else smtplib.SMTP(timeout=WITHIN_S)
        )
        # The name in the certificate: the public API takes it only if it connects at once.
        smtp._host = self.host  # type: ignore[attr-defined]  # noqa: SLF001
        return smtp

    def send(self, smtp: smtplib.SMTP, mail: EmailMessage, to: Sequence[str]) -> int:
        """Send a mail; return how many recipients the server has refused. It blocks."""
        try:
            smtp.connect(self.host, self.port)
            if self.tls == "starttls":
                smtp.starttls(context=ssl.create_default_context())
            if self.user:
                smtp.login(self.user, self.password)
            refused = smtp.send_message(mail, self.sender, to)
            with contextlib.suppress(OSError, smtplib.SMTPException):
                smtp.quit()
            return len(refused)
        finally:
            smtp.close()


@dataclass(slots=True)
class MailAllowance:
    """How many mails each tenant may have sent on a day (UTC), by this process."""

    day_max: int
    _day: int = 0
    _used: dict[str, int] = field(default_factory=dict)

    def use(self, tenant: str, count: int, *, now_ms: int) -> bool:
        """Say whether this many may be sent, and count them as sent if so."""
        if (day := now_ms // DAY_MS) != self._day:
            self._day, self._used = day, {}
        used = self._used.get(tenant, 0) + count
        if used > self.day_max:
            return False
        self._used[tenant] = used
        return True

    def give_back(self, tenant: str, count: int) -> None:
        """Take back mails that were not sent."""
        self._used[tenant] = max(0, self._used.get(tenant, 0) - count)


class Mailer:
    """Sends mail; none while there is no server."""

    def __init__(self, server: MailServer | None, allowance: MailAllowance) -> None:
        self.server, self._allowance = server, allowance
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="mail")
        self._turns = asyncio.Semaphore(_THREADS)
        # The turns of tenants that have one or wait for one now.
        self._turns_of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def send(self, message: Message, to: Sequence[str], *, tenant: str, now_ms: int) -> str:
        """Send a mail; return the server's answer, or raise MailError if it goes to nobody."""
        if self.server is None:
            raise MailError("this Hifi sends no mail: whoever runs it sets HIFI_MAIL_HOST")
        if not self._allowance.use(tenant, len(to), now_ms=now_ms):
            raise MailError("the tenant has sent as many mails today as it may")
        is_sent = False
        try:
            turn = self._turns_of.setdefault(tenant, asyncio.Lock())
            async with turn, self._turns:
                refused = await self._exchange(self.server, message, to, now_ms)
            is_sent = True
        finally:
            if not is_sent:
                self._allowance.give_back(tenant, len(to))
        some = f" for {len(to) - refused} of {len(to)} recipients" if refused else ""
        return f"the mail server took it{some}"

    async def _exchange(
        self, server: MailServer, message: Message, to: Sequence[str], now_ms: int
    ) -> int:
        smtp = server.connection()
        try:
            mail = _mail(server, message, to, now_ms)
            async with asyncio.timeout(WITHIN_S):
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, server.send, smtp, mail, to)
        except TimeoutError:
            raise MailError(f"the mail server did not answer in {WITHIN_S:g} s") from None
        except smtplib.SMTPRecipientsRefused as error:
            codes = sorted({str(code) for code, _ in error.recipients.values()})
            why = f"the mail server refused all recipients ({', '.join(codes)})"
            raise MailError(why) from error
        except smtplib.SMTPResponseException as error:
            raise MailError(f"the mail server answered {error.smtp_code}") from error
        except (OSError, smtplib.SMTPException, ValueError) as error:
            why = f"the mail server cannot be used ({type(error).__name__})"
            raise MailError(why) from error
        finally:
            # A thread that still waits for it goes on at once.
            if (waited_for := smtp.sock) is not None:
                with contextlib.suppress(OSError):
                    waited_for.shutdown(socket.SHUT_RDWR)


def _mail(server: MailServer, message: Message, to: Sequence[str], now_ms: int) -> EmailMessage:
    # Every server takes ASCII.
    mail = EmailMessage(policy=SMTP.clone(cte_type="7bit"))
    mail["From"], mail["To"] = server.sender, ", ".join(to)
    mail["Subject"] = message.title
    mail["Date"] = format_datetime(datetime.fromtimestamp(now_ms / 1000, UTC))
    mail["Message-ID"] = f"<{message.id}@{server.sender.partition('@')[2]}>"
    # No absence notice may answer it (RFC 3834).
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.body.decode())
    return mail
