"""Reads the settings of channels, which observe and all gateways share."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from shared.config.outside.channel import is_mailbox
from shared.runtime.channels.mail import MailAllowance, Mailer, MailServer
from shared.runtime.channels.posting import ChannelPoster
from shared.runtime.channels.sending import ChannelSender
from shared.runtime.resolver import Resolver
from shared.runtime.settings import SecretSettings
from shared.runtime.setup_error import SetupError


def _sender(text: str) -> str:
    if text and not is_mailbox(text):
        raise SetupError("HIFI_MAIL_FROM is not a mail address such as hifi@shop.example.")
    return text


class ChannelSettings(SecretSettings):
    """HIFI_MAIL_*: the server for mail; without a host no mail is sent."""

    model_config = SettingsConfigDict(frozen=True, hide_input_in_errors=True)

    # Whether channels may have private addresses.
    allow_private: bool = False
    mail_host: str = Field(default="", validation_alias="HIFI_MAIL_HOST")
    # The servers' port for programs that sign in (RFC 6409); with `tls` it is usually 465.
    mail_port: Annotated[int, Field(ge=1, le=65_535)] = Field(
        default=587, validation_alias="HIFI_MAIL_PORT"
    )
    mail_tls: Literal["starttls", "tls", "off"] = Field(
        default="starttls", validation_alias="HIFI_MAIL_TLS"
    )
    mail_user: str = Field(default="", validation_alias="HIFI_MAIL_USER")
    mail_password_file: Path | None = Field(
        default=None, validation_alias="HIFI_MAIL_PASSWORD_FILE"
    )
    mail_from: Annotated[str, AfterValidator(_sender)] = Field(
        default="", validation_alias="HIFI_MAIL_FROM"
    )
    # The maximum number of mails that a process sends for one tenant in a day, counted for each
    # recipient. There is a limit because recipients have not consented.
    mail_tenant_day_max: Annotated[int, Field(ge=1)] = Field(
        default=200, validation_alias="HIFI_MAIL_TENANT_DAY_MAX"
    )

    @property
    def channel_sender(self) -> ChannelSender:
        """The process's only sender to channels, as it counts each tenant's mails."""
        mailer = Mailer(self.mail_server, MailAllowance(self.mail_tenant_day_max))
        return ChannelSender(ChannelPoster(Resolver(), self.allow_private), mailer, self.secret_box)

    @property
    def mail_server(self) -> MailServer | None:
        """The mail server; raise SetupError if the settings do not describe one."""
        if not self.mail_host:
            return None
        if not self.mail_from:
            raise SetupError("HIFI_MAIL_HOST is set, but HIFI_MAIL_FROM is not: set the sender.")
        if (self.mail_password_file is None) != (not self.mail_user):
            raise SetupError("Set both HIFI_MAIL_USER and HIFI_MAIL_PASSWORD_FILE, or neither.")
        if self.mail_user and self.mail_tls == "off":
            raise SetupError("HIFI_MAIL_TLS is off, but HIFI_MAIL_USER signs in only over TLS.")
        return MailServer(
            host=self.mail_host,
            port=self.mail_port,
            tls=self.mail_tls,
            sender=self.mail_from,
            user=self.mail_user,
            password=self._password(),
        )

    def _password(self) -> str:
        if self.mail_password_file is None:
            return ""
        try:
            return self.mail_password_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(
                f"HIFI_MAIL_PASSWORD_FILE is {self.mail_password_file}, which cannot be read:"
                " name a file with the password."
            ) from error
