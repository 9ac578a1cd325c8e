"""Forms that create, change, test and remove channels; an empty secret field keeps the secret."""

from typing import Any, get_args

import structlog
from starlette.responses import HTMLResponse, Response

from console.page_request import PageRequest
from console.pages.changes.form_pages import (
    FormPage,
    check_field,
    text_field,
    write_settings,
)
from console.pages.changes.questions import ChangeByForm, ChangeQuestion, done, same
from console.parts.layout import Page, render, still_page
from console.parts.markup import Child, fragment, tag
from console.parts.pieces import choice, code, ways
from shared.config.outside.channel import RECIPIENTS_MAX, Channel, Concern, Via

log = structlog.get_logger()

CHANNELS = "/channels"
NEW, SETTINGS, TEST, REMOVE = (
    f"{CHANNELS}/{what}" for what in ("new", "settings", "test", "remove")
)
_ABOUT = {
    Concern.FAILING: "a destination fails or rejects events",
    Concern.HELD: "a destination is held, or disabled because of its answers",
    Concern.SOON_DISABLED: "a destination will soon be disabled",
    Concern.LOSS: "events are lost or have no outcome",
    Concern.LAG: "a destination is stalled, or it is slow or rate-limited and events are late",
    Concern.NO_AUDIT: "nothing checks for losses (for operators)",
}


def channel_links(asked: PageRequest, channel: Channel) -> Child:
    """Return links to the pages that change a channel."""
    if not may_change(asked):
        return ""
    links = [("Change …", SETTINGS), ("Test …", TEST), ("Remove …", REMOVE)]
    return ways((says, f"{path}?channel={channel.name}") for says, path in links)


def may_change(asked: PageRequest) -> bool:
    """Return whether the viewer may change channels; these report about all streams."""
    return asked.viewer.may_change and not asked.viewer.streams


def to(channel: Channel) -> Child:
    """Return a channel's target, as far as anybody may see it."""
    return ", ".join(channel.recipients) or channel.url or "a sealed address"


async def new_page(asked: PageRequest) -> Page:
    return _form(asked, None, "", asked.fields).page(asked)


async def make(asked: PageRequest) -> Response:
    name, shown = asked.field("channel"), _form(asked, None, "", asked.fields)
    if not name:
        return shown.again(asked, "Enter a name.", 422)
    if name in {each.name for each in asked.channels}:
        return shown.again(asked, f"A channel {name} already exists.", 409)
    return await _write(asked, shown, name, version="")


async def settings_page(asked: PageRequest) -> Page:
    channel = asked.channel
    version = await asked.control.version("channels", channel.name)
    return _form(asked, channel, version, _typed(channel)).page(asked)


async def change_settings(asked: PageRequest) -> Response:
    """Write the settings, or show the form again with the error."""
    channel, version = asked.channel, asked.field("version")
    shown = _form(asked, channel, version, asked.fields)
    return await _write(asked, shown, channel.name, version=version)


async def test_page(asked: PageRequest) -> Page:
    return await _ask(
        asked,
        ("Test ", "?", "Send a message"),
        "Hifi sends it a message that is marked as a test. A tenant may send ten tests in an hour.",
        "test",
    )


async def test(asked: PageRequest) -> Response:
    """Send a test message, and show the answer."""
    name = asked.channel.name
    log.info("channel.tested", key_id=asked.viewer.key_id, channel=name)
    outcome = await asked.control.test_channel(name)
    kind = "done" if outcome["is_taken"] else "bad"
    took = "The message was taken" if outcome["is_taken"] else "The message was not taken"
    content = (
        tag("h1", "Test of ", code(name)),
        tag("p", f"{took}: {outcome['says']}.", class_=kind, role="status"),
        tag("p", same(f"hifi channels test {name}"), class_="quiet"),
        tag("p", tag("a", "To the channels", href=CHANNELS)),
    )
    page = still_page(f"Test of {name}", CHANNELS, "tested", *content)
    return HTMLResponse(render(page, asked.around))


async def remove_page(asked: PageRequest) -> Page:
    says = "It will receive no more alerts."
    return await _ask(asked, ("Remove ", "?", "Remove"), says, "delete")


async def remove(asked: PageRequest) -> Response:
    channel, version = asked.channel, asked.field("version")
    return await done(
        asked,
        "channel.removed",
        asked.control.change("DELETE", "channels", channel.name, version=version),
        seen=lambda now: channel.id not in now.configuration.channels,
        back=f"{CHANNELS}?done=removed",
        channel=channel.id,
    )


async def _ask(asked: PageRequest, words: tuple[str, str, str], says: str, command: str) -> Page:
    name = asked.channel.name
    question = ChangeQuestion(
        name=name,
        words=words,
        says=says,
        also=same(f"hifi channels {command} {name}"),
        here=CHANNELS,
        back=CHANNELS,
        at=("channels", name),
        fields={"channel": name},
    )
    return await question.page(asked)


async def _write(asked: PageRequest, shown: FormPage, name: str, *, version: str) -> Response:
    # Only the gateway decides whose channel it is: the viewer's tenant's, or the default tenant's.
    key, before = asked.channel_id(name), asked.context.configuration.channels
    return await write_settings(
        asked,
        shown,
        "channel.written",
        *("channels", name),
        version=version,
        settings=_wanted(asked),
        seen=lambda now: now.configuration.channels.get(key) != before.get(key),
        back=f"{CHANNELS}?done=set",
        channel=name,
    )


def _wanted(asked: PageRequest) -> dict[str, Any]:
    """Return the channel in the API's format; the API validates it."""
    recipients = [each.strip() for each in asked.field("recipients").split(",")]
    wanted: dict[str, Any] = {
        "via": asked.field("via"),
        "recipients": [each for each in recipients if each],
        "about": [each.value for each in Concern if asked.field(each.value)],
    }
    if asked.field("url"):
        wanted["url"] = asked.field("url")
    if asked.field("secret_url"):
        wanted["secret_url"] = asked.field("secret_url")
    if asked.field("signing_secret"):
        wanted["signing_secrets"] = [asked.field("signing_secret")]
    return wanted


def _typed(channel: Channel) -> dict[str, str]:
    """Return the initial values of a channel's form."""
    return {
        "via": channel.via,
        "url": channel.url or "",
        "recipients": ", ".join(channel.recipients),
        **{each.value: "yes" for each in channel.about},
    }


def _form(asked: PageRequest, channel: Channel | None, version: str, typed: Any) -> FormPage:
    stays = "" if channel is None else " Leave empty to keep it."
    name = [] if channel else [text_field("Name", "channel", asked.field("channel"), required=True)]
    content: list[Child] = [
        *name,
        choice("Via", "via", get_args(Via), typed.get("via", "")),
        text_field("Address", "url", typed.get("url", ""), size=60, hint="Webhook only."),
        text_field("Secret address", "secret_url", typed.get("secret_url", ""), size=60,
                   hint="For Slack, or for a webhook whose address is secret. Hifi stores it"
                   f" sealed.{stays}"),
        text_field("Signing secret", "signing_secret", typed.get("signing_secret", ""), size=60,
                   hint="Signs messages to a webhook. Create one with hifi secrets"
                   f" new-signing-secret.{stays}"),
        text_field("Recipients", "recipients", typed.get("recipients", ""), size=60,
                   hint=f"E-mail only: up to {RECIPIENTS_MAX} addresses, separated by commas."),
        tag("fieldset", tag("legend", "Notify about"), [
            check_field(fragment(code(each.value), f": {says}"), each.value,
                        is_checked=bool(typed.get(each.value)))
            for each, says in _ABOUT.items()
        ], tag("p", "Leave all unticked to be notified about everything.", class_="note")),
    ]  # fmt: skip
    hidden = {} if channel is None else {"version": version, "channel": channel.name}
    heading: Child = "New channel"
    if channel is not None:
        heading = fragment("Settings of ", code(channel.name))
    return FormPage(
        title="New channel" if channel is None else "Settings",
        heading=heading,
        here=CHANNELS,
        content=content,
        yes="Create" if channel is None else "Save",
        back=CHANNELS,
        command=(
            "hifi channels create NAME --via WAY"
            if channel is None
            else f"hifi channels put {channel.name} --via {channel.via}"
        ),
        hidden=hidden,
    )


# The question and the change, by path.
CHANGES = {
    NEW: ChangeByForm(new_page, make),
    SETTINGS: ChangeByForm(settings_page, change_settings),
    TEST: ChangeByForm(test_page, test),
    REMOVE: ChangeByForm(remove_page, remove),
}
