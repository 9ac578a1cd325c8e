"""Writes the messages to a channel: our own JSON for webhooks, text for Slack and mail."""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Any

from observe.notify.channel_memory import Due, OpenNotice
from observe.notify.notices import Notice
from shared.config.outside.channel import Channel
from shared.runtime.channels.message import Message

# The maximum number of notices that a message lists; it only counts the others.
NAMED_MAX = 20
# Slack may fold or truncate longer texts (https://docs.slack.dev).
SLACK_CHARS_MAX = 4_000
_SAYS_CHARS_MAX = 400
# Characters that are markup to Slack.
_SLACK_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@dataclass(frozen=True, slots=True)
class Links:
    """The links in messages."""

    # The console's address; if empty, messages name runbooks as files, without links.
    console: str = ""

    def of(self, notice: Notice) -> dict[str, str]:
        if not self.console:
            return {"console": "", "runbook": f"docs/runbooks/{notice.runbook}.md"}
        console = self.console.rstrip("/")
        return {
            "console": f"{console}{notice.path}",
            "runbook": f"{console}/runbooks/{notice.runbook}",
        }


def message_of(channel: Channel, links: Links, due: Due) -> Message:
    """Return the message to a channel; the same notices give the same id."""
    parts = [f"{standing.notice.key} {standing.since_ms} begun" for standing in due.begun]
    parts += [f"{standing.notice.key} {standing.since_ms} over" for standing in due.over]
    digest = hashlib.sha256("\n".join([channel.id, *parts]).encode()).hexdigest()
    title = _title(due)
    match channel.via:
        case "webhook":
            body = json.dumps(_fields(title, links, due), ensure_ascii=False)
        case "slack":
            # Leave room for the number of further notices.
            left = SLACK_CHARS_MAX - 50
            lines = _lines(f"*{title}*", due, links, is_slack=True, chars_max=left)
            body = json.dumps({"text": "\n".join(lines)})
        case "mail":
            body = "\n\n".join(_lines(title, due, links, is_slack=False)) + "\n"
    # A destination's answer may contain half a surrogate pair, which UTF-8 cannot encode.
    return Message(f"ntf_{digest[:24]}", title, body.encode(errors="replace"))


def _title(due: Due) -> str:
    parts = []
    if due.begun:
        things = "1 thing needs" if len(due.begun) == 1 else f"{len(due.begun):,} things need"
        parts.append(f"{things} a look")
    if due.over:
        parts.append(f"{len(due.over):,} {'is' if len(due.over) == 1 else 'are'} over")
    return f"Hifi: {', '.join(parts)}"


def _fields(title: str, links: Links, due: Due) -> dict[str, Any]:
    return {
        "type": "hifi.notice",
        "title": title,
        "begun_count": len(due.begun),
        "over_count": len(due.over),
        "begun": [_notice_fields(standing, links) for standing in due.begun[:NAMED_MAX]],
        "over": [_notice_fields(standing, links) for standing in due.over[:NAMED_MAX]],
    }


def _notice_fields(standing: OpenNotice, links: Links) -> dict[str, Any]:
    notice = standing.notice
    stream, _, destination = notice.destination_id.partition("/")
    return {
        "about": notice.concern.value,
        "stream": stream,
        "destination": destination,
        "says": notice.says[:_SAYS_CHARS_MAX],
        "since": _at(standing),
        "waiting_events": notice.waiting,
        **links.of(notice),
    }


def _lines(
    title: str, due: Due, links: Links, *, is_slack: bool, chars_max: float = inf
) -> list[str]:
    """Return as many lines as fit, and the number of the others."""
    lines, chars = [title], len(title)
    named = [_begun_line(standing, links, is_slack=is_slack) for standing in due.begun[:NAMED_MAX]]
    named += [_over_line(standing, is_slack=is_slack) for standing in due.over[:NAMED_MAX]]
    for line in named:
        chars += len(line) + 1
        if chars > chars_max:
            break
        lines.append(line)
    if hidden := len(due.begun) + len(due.over) - len(lines) + 1:
        lines.append(f"and {hidden:,} more")
    return lines


def _begun_line(standing: OpenNotice, links: Links, *, is_slack: bool) -> str:
    notice, tell = standing.notice, _told_slack if is_slack else _told
    leads = " · ".join(
        f"<{url}|{word}>" if is_slack and url.startswith("http") else f"{word}: {url}"
        for word, url in links.of(notice).items()
        if url
    )
    waiting = f", backlog {notice.waiting:,}" if notice.waiting else ""
    since = f"(since {_at(standing)}{waiting})"
    return f"• {tell(_name(standing))}: {tell(notice.says)} {since} {leads}"


def _over_line(standing: OpenNotice, *, is_slack: bool) -> str:
    tell = _told_slack if is_slack else _told
    return f"Over: {tell(_name(standing))}, {tell(standing.notice.says)}"


def _told(text: str) -> str:
    """Return the text in one line, as it may contain a destination's answer."""
    return " ".join(text[:_SAYS_CHARS_MAX].split())


def _told_slack(text: str) -> str:
    """Return the text in one line, escaped so that Slack only shows it."""
    return _told(text).translate(_SLACK_ESCAPES)


def _name(standing: OpenNotice) -> str:
    return standing.notice.destination_id or "Hifi"


def _at(standing: OpenNotice) -> str:
    return datetime.fromtimestamp(standing.since_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
