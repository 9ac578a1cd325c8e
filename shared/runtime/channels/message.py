"""Messages to channels: a title, and a body in the form that the channel takes."""

import json
import os
from dataclasses import dataclass

from shared.config.outside.channel import Channel


@dataclass(frozen=True, slots=True)
class Message:
    """One message, as it goes out."""

    # The same when it is sent again.
    id: str
    # The subject of a mail; in the others it is in the body.
    title: str
    # JSON, or the text of a mail.
    body: bytes


def trial_message(channel: Channel) -> Message:
    """One that only tries whether the channel works."""
    title = f"Hifi: a try of channel {channel.name}. Nothing is the matter."
    match channel.via:
        case "mail":
            body = f"{title}\n".encode()
        case "slack":
            body = json.dumps({"text": title}).encode()
        case "webhook":
            body = json.dumps({"type": "hifi.notice.try", "title": title}).encode()
    return Message(f"ntf_{os.urandom(12).hex()}", title, body)
