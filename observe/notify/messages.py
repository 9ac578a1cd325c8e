"""Words what a channel is told: as JSON of ours for webhooks, as text for Slack and mail."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from observe.notify.channel_memory import Due, OpenNotice
from observe.notify.notices import Notice
from shared.config.outside.channel import Channel
from shared.runtime.channels.message import Message

# A message is read by people: so many are named, and the rest is counted.
NAMED_MAX = 20
_SAYS_CHARS_MAX = 400
# What would be markup to Slack.
_SLACK_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@dataclass(frozen=True, slots=True)
class Links:
    """Where links in messages lead."""

    # Where people reach the console, which has the runbooks; none: they are named as files.
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
    """What a channel is told; of the same notices it has the same id."""
    parts = [f"{it.notice.key} {it.since_ms} begun" for it in due.begun]
    parts += [f"{it.notice.key} {it.since_ms} over" for it in due.over]
    digest = hashlib.sha256("\n".join([channel.id, *parts]).encode()).hexdigest()
    title = _title(due)
    match channel.via:
        case "webhook":
            body = json.dumps(_fields(title, links, due), ensure_ascii=False)
        case "slack":
            lines = [f"*{title}*", *_lines(due, links, is_slack=True)]
            body = json.dumps({"text": "\n".join(lines)})
        case "mail":
            body = "\n\n".join([title, *_lines(due, links, is_slack=False)]) + "\n"
    return Message(f"ntf_{digest[:24]}", title, body.encode())


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
        "begun": [_notice_fields(it, links) for it in due.begun[:NAMED_MAX]],
        "over": [_notice_fields(it, links) for it in due.over[:NAMED_MAX]],
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


def _lines(due: Due, links: Links, *, is_slack: bool) -> Iterator[str]:
    tell = _told_slack if is_slack else _told
    begun, over = due.begun[:NAMED_MAX], due.over[:NAMED_MAX]
    for it in begun:
        leads = " · ".join(
            f"<{url}|{word}>" if is_slack and url.startswith("http") else f"{word}: {url}"
            for word, url in links.of(it.notice).items()
            if url
        )
        waiting = f", {it.notice.waiting:,} wait" if it.notice.waiting else ""
        yield f"• {tell(_name(it))}: {tell(it.notice.says)} (since {_at(it)}{waiting}) {leads}"
    for it in over:
        yield f"Over: {tell(_name(it))}, {tell(it.notice.says)}"
    if hidden := len(due.begun) - len(begun) + len(due.over) - len(over):
        yield f"and {hidden:,} more"


def _told(text: str) -> str:
    """In one line: a destination's answer may be in it."""
    return " ".join(text[:_SAYS_CHARS_MAX].split())


def _told_slack(text: str) -> str:
    """The same, so that Slack shows it and does nothing else."""
    return _told(text).translate(_SLACK_ESCAPES)


def _name(standing: OpenNotice) -> str:
    return standing.notice.destination_id or "Hifi"


def _at(standing: OpenNotice) -> str:
    return datetime.fromtimestamp(standing.since_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
