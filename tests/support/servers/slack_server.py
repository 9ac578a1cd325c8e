"""Answers like an incoming webhook of Slack, and refuses what Slack would garble or misread."""

import json
import re
from dataclasses import dataclass, field

from tests.support.servers.scripted_destination import Reply, Request

# Slack shows 4,000 characters of a text well (and keeps 40,000).
TEXT_CHARS_MAX = 4_000
# One message a second for each channel, according to its rate limits.
_PAUSE_S = 1.0
# Between < and > are links to web pages, or Slack's own commands, such as <!channel>.
_COMMAND = re.compile(r"<(?!https?://[^<>|\s]+\|[^<>]+>)[^>]*>?")
_BARE = re.compile(r"&(?!amp;|lt;|gt;)")


@dataclass
class SlackRules:
    """The script of one webhook of Slack, and its answers in order."""

    said: list[str] = field(default_factory=list)
    _last_s: float = float("-inf")

    def __call__(self, _: int, request: Request) -> Reply:
        status, says = self._judged(request)
        self.said.append(says)
        headers = {"retry-after": "1"} if says == "rate_limited" else {}
        return Reply(status, headers, says.encode())

    def _judged(self, request: Request) -> tuple[int, str]:
        if request.received_s < self._last_s + _PAUSE_S:
            return 429, "rate_limited"
        self._last_s = request.received_s
        wrong = _wrong_with(request)
        return (400, wrong) if wrong else (200, "ok")


def _wrong_with(request: Request) -> str:
    try:
        given = json.loads(request.body)
    except ValueError:
        return "invalid_payload"
    if request.headers["content-type"] != "application/json" or not isinstance(given, dict):
        return "invalid_payload"
    text = given.get("text")
    if not isinstance(text, str) or not text:
        return "no_text"
    if len(text) > TEXT_CHARS_MAX:
        return "msg_too_long"
    is_command = _COMMAND.search(text) or _BARE.search(text)
    return "it would be read as a command" if is_command else ""
