"""Sends mail through the operator's server, in bounded time and in separate threads.

Errors do not quote the server's answers, which are only for its operator.
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

# For the whole exchange, from connecting to the last answer.
WITHIN_S = 20.0
# The maximum number of mails in progress at once. Each tenant has one at most, so a tenant whose
# addresses make the server slow does not delay other tenants.
_THREADS = 8


class MailError(Exception):
    """A mail was not accepted; the text says why."""


@dataclass(frozen=True, slots=True)
class MailServer:
    """The server for all mail, and Hifi's account there."""

    host: str
    port: int
    tls: Literal["starttls", "tls", "off"]
    sender: str
    user: str = ""
    password: str = field(default="", repr=False)

    def connection(self) -> smtplib.SMTP:
        """Return an unopened connection, which waits up to `WITHIN_S` for each answer."""
        smtp = (
            smtplib.SMTP_SSL(timeout=WITHIN_S, context=ssl.create_default_context())
            if self.tls == "tls"
            else smtplib.SMTP(timeout=WITHIN_S)
        )
        # The expected name in the certificate: the public API takes it only when it also connects.
        smtp._host = self.host  # type: ignore[attr-defined]  # noqa: SLF001
        return smtp

    def send(self, smtp: smtplib.SMTP, mail: EmailMessage, to: Sequence[str]) -> int:
        """Send a mail, blocking; return the number of refused recipients."""
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
    """The limit of mails for each tenant in a day (UTC), in this process."""

    day_max: int
    _day: int = 0
    _used: dict[str, int] = field(default_factory=dict)

    def use(self, tenant: str, count: int, *, now_ms: int) -> bool:
        """Return whether this many mails may be sent; if so, count them as sent."""
        if (day := now_ms // DAY_MS) != self._day:
            self._day, self._used = day, {}
        used = self._used.get(tenant, 0) + count
        if used > self.day_max:
            return False
        self._used[tenant] = used
        return True

    def give_back(self, tenant: str, count: int) -> None:
        """Subtract mails that were not sent."""
        self._used[tenant] = max(0, self._used.get(tenant, 0) - count)


class Mailer:
    """Sends mail; without a server every mail is an error."""

    def __init__(self, server: MailServer | None, allowance: MailAllowance) -> None:
        self.server, self._allowance = server, allowance
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="mail")
        self._turns = asyncio.Semaphore(_THREADS)
        # The turns of tenants that are sending or waiting.
        self._turns_of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def send(self, message: Message, to: Sequence[str], *, tenant: str, now_ms: int) -> str:
        """Send a mail; return its result, or raise MailError if no recipient gets it."""
        if self.server is None:
            raise MailError("this Hifi sends no mail: its operator sets HIFI_MAIL_HOST")
        if not self._allowance.use(tenant, len(to), now_ms=now_ms):
            raise MailError("the tenant has reached its limit of mails for today")
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
        return f"the mail server accepted it{some}"

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
            # A thread that still waits for the server continues at once.
            if (waited_for := smtp.sock) is not None:
                with contextlib.suppress(OSError):
                    waited_for.shutdown(socket.SHUT_RDWR)


def _mail(server: MailServer, message: Message, to: Sequence[str], now_ms: int) -> EmailMessage:
    # Every server accepts ASCII.
    mail = EmailMessage(policy=SMTP.clone(cte_type="7bit"))
    mail["From"], mail["To"] = server.sender, ", ".join(to)
    mail["Subject"] = message.title
    mail["Date"] = format_datetime(datetime.fromtimestamp(now_ms / 1000, UTC))
    mail["Message-ID"] = f"<{message.id}@{server.sender.partition('@')[2]}>"
    # Out-of-office replies must not answer it (RFC 3834).
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.body.decode())
    return mail
