"""Words what a channel is told: as JSON of ours for webhooks, as text for Slack."""

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from observe.notify.channel_memory import Due, OpenNotice
from observe.notify.channels import Channel, Channels

# A message is read by people: so many are named, and the rest is counted.
NAMED_MAX = 20
_SAYS_CHARS_MAX = 400
# What would be markup to Slack.
_SLACK_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def message_id(channel: Channel, due: Due) -> str:
    """The same for the same notices, so that who gets a message again can tell."""
    parts = [f"{it.notice.key} {it.since_ms} begun" for it in due.begun]
    parts += [f"{it.notice.key} {it.since_ms} over" for it in due.over]
    digest = hashlib.sha256("\n".join([channel.name, *parts]).encode()).hexdigest()
    return f"ntf_{digest[:24]}"


def body_of(channel: Channel, channels: Channels, due: Due) -> bytes:
    """The body of the request."""
    title = _title(due)
    begun, over = due.begun[:NAMED_MAX], due.over[:NAMED_MAX]
    if channel.kind == "slack":
        lines = [_slack_line(it, channels) for it in begun]
        lines += [f"Over: {_escaped(_name(it))}, {_escaped(it.notice.says)}" for it in over]
        hidden = len(due.begun) - len(begun) + len(due.over) - len(over)
        lines += [f"and {hidden:,} more"] * bool(hidden)
        text = "\n".join([f"*{title}*", *lines])
        return json.dumps({"text": text}).encode()
    fields = {
        "type": "hifi.notice",
        "title": title,
        "begun_count": len(due.begun),
        "over_count": len(due.over),
        "begun": [_fields(it, channels) for it in begun],
        "over": [_fields(it, channels) for it in over],
    }
    return json.dumps(fields, ensure_ascii=False).encode()


def try_body(channel: Channel) -> bytes:
    """Of a message that only tries whether the channel works."""
    title = f"Hifi: a try of channel {channel.name}. Nothing is the matter."
    if channel.kind == "slack":
        return json.dumps({"text": title}).encode()
    return json.dumps({"type": "hifi.notice.try", "title": title}).encode()


def _title(due: Due) -> str:
    parts = []
    if due.begun:
        things = "1 thing needs" if len(due.begun) == 1 else f"{len(due.begun):,} things need"
        parts.append(f"{things} a look")
    if due.over:
        parts.append(f"{len(due.over):,} {'is' if len(due.over) == 1 else 'are'} over")
    return f"Hifi: {', '.join(parts)}"


def _fields(standing: OpenNotice, channels: Channels) -> dict[str, Any]:
    notice = standing.notice
    stream, _, destination = notice.destination_id.partition("/")
    return {
        "about": notice.concern.value,
        "stream": stream,
        "destination": destination,
        "says": notice.says[:_SAYS_CHARS_MAX],
        "since": _at(standing),
        "waiting_events": notice.waiting,
        "console": _console(standing, channels),
        "runbook": _runbook(standing, channels),
    }


def _slack_line(standing: OpenNotice, channels: Channels) -> str:
    says = _escaped(standing.notice.says)
    links = [
        f"<{url}|{word}>" if url.startswith("http") else f"{word}: {url}"
        for word, url in (
            ("console", _console(standing, channels)),
            ("runbook", _runbook(standing, channels)),
        )
        if url
    ]
    waiting = f", {standing.notice.waiting:,} wait" if standing.notice.waiting else ""
    return f"• {_escaped(_name(standing))}: {says} (since {_at(standing)}{waiting}) " + " · ".join(
        links
    )


def _escaped(text: str) -> str:
    """As Slack shows it and does nothing else: a destination's answer may be in it."""
    one_line = " ".join(text[:_SAYS_CHARS_MAX].split())
    return one_line.translate(_SLACK_ESCAPES)


def _name(standing: OpenNotice) -> str:
    return standing.notice.destination_id or "Hifi"


def _at(standing: OpenNotice) -> str:
    return datetime.fromtimestamp(standing.since_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _console(standing: OpenNotice, channels: Channels) -> str:
    return channels.console.rstrip("/") + standing.notice.path if channels.console else ""


def _runbook(standing: OpenNotice, channels: Channels) -> str:
    return f"{channels.runbooks.rstrip('/')}/{standing.notice.runbook}.md"
