"""Messages to channels: a title, and a body in the channel's format."""

import json
import os
from dataclasses import dataclass

from shared.config.outside.channel import Channel


@dataclass(frozen=True, slots=True)
class Message:
    """One message in its final form."""

    # A repeated message has the same id.
    id: str
    # The subject of a mail; other channels have it in the body.
    title: str
    # JSON, or the text of a mail.
    body: bytes


def trial_message(channel: Channel) -> Message:
    """Return a message that tests whether a channel works."""
    title = f"Hifi: this is a test of channel {channel.name}. There is no trouble."
    match channel.via:
        case "mail":
            body = f"{title}\n".encode()
        case "slack":
            body = json.dumps({"text": title}).encode()
        case "webhook":
            body = json.dumps({"type": "hifi.notice.try", "title": title}).encode()
    return Message(f"ntf_{os.urandom(12).hex()}", title, body)
