"""Sends a message to a channel of any kind, and returns its answer."""

from dataclasses import dataclass

from shared.config.outside.channel import Channel
from shared.config.signing import signing_key
from shared.event.trial import ChannelAnswer
from shared.runtime.channels.mail import Mailer, MailError
from shared.runtime.channels.message import Message
from shared.runtime.channels.posting import ChannelPoster, PostError
from shared.runtime.secret_box import SecretBox, SecretUnavailableError


@dataclass(frozen=True, slots=True)
class ChannelSender:
    """Sends to channels; a failure is an answer, never an error."""

    poster: ChannelPoster
    mailer: Mailer
    box: SecretBox

    async def send(self, channel: Channel, message: Message, *, now_ms: int) -> ChannelAnswer:
        """Send a message in bounded time; return the channel's answer or the failure."""
        try:
            if channel.via == "mail":
                says = await self.mailer.send(
                    message, channel.recipients, tenant=channel.tenant, now_ms=now_ms
                )
            else:
                keys = [
                    signing_key(self._open(channel, secret)) for secret in channel.signing_secrets
                ]
                url = channel.url or self._open(channel, channel.secret_url or "")
                says = await self.poster.post(
                    url, message, keys, tenant=channel.tenant, now_ms=now_ms
                )
        except (MailError, PostError) as error:
            return ChannelAnswer(is_taken=False, says=str(error))
        except SecretUnavailableError as error:
            return ChannelAnswer(is_taken=False, says=f"its secret cannot be opened: {error}")
        return ChannelAnswer(is_taken=True, says=says)

    def _open(self, channel: Channel, sealed: str) -> str:
        return self.box.unseal(sealed, owner=channel.owner)
