"""Settings of a channel: where people get notices of trouble, and the subjects of these notices.

Secrets in it are always sealed, see shared/config/credentials.py.
"""

import re
from enum import Enum
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, PlainSerializer, model_validator
from pydantic.dataclasses import dataclass

from shared.config.access import DEFAULT_TENANT
from shared.config.model import CONFIG, ConfigError, ConfigObject
from shared.config.values import Name, Sealed, WebAddress, check
from shared.event.topics import config_key

Via: TypeAlias = Literal["webhook", "slack", "mail"]

# Two, so that a new signing secret can replace one that receivers still check with.
_SIGNING_SECRETS_MAX = 2
# Enough for people on call; larger groups can use a list on their mail server.
RECIPIENTS_MAX = 10
# The longest address (RFC 5321, 4.5.3.1.3), and the longest part before the @.
_ADDRESS_CHARS_MAX, _LOCAL_CHARS_MAX = 254, 64
# No quotes, comments or display names, so nothing can begin another header or recipient.
_MAILBOX = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
)


class Concern(Enum):
    """The subject of a notice; a channel may select some of them."""

    FAILING = "failing"
    HELD = "held"
    SOON_DISABLED = "soon_disabled"
    LOSS = "loss"
    LAG = "lag"
    # Only the operator gets it.
    NO_AUDIT = "no_audit"


def is_mailbox(text: str) -> bool:
    """Whether the text is just an address such as ops@shop.example."""
    is_short = len(text) <= _ADDRESS_CHARS_MAX and text.find("@") <= _LOCAL_CHARS_MAX
    return is_short and _MAILBOX.fullmatch(text) is not None


_Mailbox: TypeAlias = Annotated[
    str, check(is_mailbox, "{!r} is not a mail address such as ops@shop.example")
]
_Concerns: TypeAlias = Annotated[
    frozenset[Concern],
    PlainSerializer(lambda about: sorted(each.value for each in about), return_type=list[str]),
]


@dataclass(frozen=True, slots=True, config=CONFIG)
class Channel(ConfigObject):
    """Gets notices of trouble with its tenant's destinations; the operator's channels get all."""

    name: Name
    via: Via
    # A channel of the default tenant is the operator's.
    tenant: Name = DEFAULT_TENANT
    # The address of a webhook.
    url: WebAddress | None = None
    # An address to keep secret: anyone who knows a Slack channel's address can post there.
    secret_url: Sealed | None = None
    # They sign messages to a webhook.
    signing_secrets: Annotated[tuple[Sealed, ...], Field(max_length=_SIGNING_SECRETS_MAX)] = ()
    # The recipients of mail.
    recipients: Annotated[tuple[_Mailbox, ...], Field(max_length=RECIPIENTS_MAX)] = ()
    # Empty means every subject.
    about: _Concerns = frozenset()

    @model_validator(mode="after")
    def _check_way(self) -> "Channel":
        is_mail = self.via == "mail"
        if is_mail != bool(self.recipients):
            wrong = "a mail channel needs some" if is_mail else f"a {self.via} channel has none"
            raise ConfigError("recipients", wrong)
        addresses = [each for each in (self.url, self.secret_url) if each is not None]
        if is_mail and addresses:
            raise ConfigError("url", "a mail channel has recipients instead of an address")
        if self.via == "slack" and (self.url is not None or not addresses):
            wrong = "put a slack channel's address here, where it is sealed, and leave out url"
            raise ConfigError("secret_url", wrong)
        if self.via == "webhook" and len(addresses) != 1:
            raise ConfigError("url", "a webhook has either a url or a secret_url")
        if self.via != "webhook" and self.signing_secrets:
            raise ConfigError("signing_secrets", "only messages to a webhook are signed")
        return self

    def is_told(self, concern: Concern, tenant: str) -> bool:
        """Whether it gets a notice on this subject; one without a tenant is for the operator."""
        is_ours = self.tenant in {DEFAULT_TENANT, tenant}
        return is_ours and (not self.about or concern in self.about)

    @property
    def id(self) -> str:
        """Its unique id: two tenants' channels may have the same name."""
        return f"{self.tenant}/{self.name}"

    @property
    def config_key(self) -> bytes:
        return config_key("channel", self.id)
