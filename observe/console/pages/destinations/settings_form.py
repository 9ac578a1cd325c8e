"""The form that makes a destination or changes its settings: they are JSON, as of the API."""

import json
from typing import Any

import structlog
from starlette.responses import HTMLResponse, RedirectResponse, Response

from observe.console.control_session import control_path
from observe.console.page_request import PageRequest
from observe.console.parts.layout import Page, form, render, still_page
from observe.console.parts.markup import NOTHING, Child, tag
from observe.console.parts.pieces import code
from shared.event.topics import destination_id
from shared.runtime.control_client import RefusedError

log = structlog.get_logger()

SETTINGS, NEW = "/destinations/settings", "/destinations/new"
# What a page has of its own, or the gateway tells beside the settings.
_NOT_SET = {"stream", "name", "warning"}
_BEGIN = '{\n  "url": "https://"\n}'


async def settings_page(asked: PageRequest) -> Page:
    """How a destination is set, to be changed."""
    shown, version = await asked.control.seen(*control_path(asked.destination))
    text = json.dumps({name: shown[name] for name in shown if name not in _NOT_SET}, indent=2)
    return _page(asked, text, version=version)


async def new_page(asked: PageRequest) -> Page:
    return _page(asked, _BEGIN)


async def change_settings(asked: PageRequest) -> Response:
    """Write them, or show the form again with what was wrong."""
    path = control_path(asked.destination)
    return await _write(asked, *path, version=asked.field("version"))


async def make(asked: PageRequest) -> Response:
    """The same of one that is not there yet."""
    stream, name = asked.field("stream"), asked.field("destination")
    if asked.context.configured(destination_id(stream, name)) is not None:
        return _again(asked, f"{stream} has a destination {name} already.", 409)
    if not (stream and name):
        return _again(asked, "It needs a stream and a name.", 422)
    return await _write(asked, "streams", stream, "destinations", name, version="")


async def _write(asked: PageRequest, *path: str, version: str) -> Response:
    try:
        settings = json.loads(asked.field("settings"))
    except ValueError as error:
        return _again(asked, f"This is no JSON: {error}.", 422)
    if not isinstance(settings, dict):
        return _again(asked, "It must be a JSON object: {...}.", 422)
    _, stream, _, name = path
    known = destination_id(stream, name)
    before = asked.context.configured(known)
    log.info("destination.written", key_id=asked.viewer.key_id, destination=known)
    try:
        await asked.control.put(*path, version=version, body=settings)
    except RefusedError as refusal:
        return _again(asked, refusal.detail, refusal.status)
    await asked.wait_until(lambda now: now.configured(known) != before)
    return RedirectResponse(f"/streams/{known}", status_code=303)


def _again(asked: PageRequest, wrong: str, status: int) -> Response:
    page = _page(asked, asked.field("settings"), wrong, version=asked.field("version"))
    return HTMLResponse(render(page, asked.around), status_code=status)


def _page(asked: PageRequest, text: str, wrong: str = "", *, version: str = "") -> Page:
    stream, name = asked.field("stream"), asked.field("destination")
    is_new = asked.path == NEW
    hidden: dict[str, Any] = {"csrf": asked.around.csrf, "version": version}
    fields: list[Child] = []
    if is_new:
        title, heading = "New destination", ["New destination"]
        fields = [_field("Stream ", "stream", stream), _field("Name ", "destination", name)]
        command, back = "hifi destinations put STREAM NAME URL", "/destinations"
        note = ""
    else:
        title, heading = "Settings", ["Settings of ", code(f"{stream}/{name}")]
        hidden |= {"stream": stream, "destination": name}
        command = f"hifi destinations change {stream} {name} --set NAME=VALUE"
        back = f"/streams/{stream}/{name}"
        note = " A secret is shown as a mark; left as it is, it stays."
    rows = min(40, max(6, text.count("\n") + 2))
    area = tag("textarea", text, name="settings", rows=rows, cols=80, spellcheck="false")
    return still_page(
        title,
        "/destinations",
        "form",
        tag("h1", *heading),
        tag("p", wrong, class_="lead bad", role="alert") if wrong else NOTHING,
        form(
            "post",
            asked.path,
            hidden,
            *(tag("p", each) for each in fields),
            tag("p", tag("label", "Settings, as JSON", tag("br"), area)),
            tag("button", "Make it" if is_new else "Change it", type="submit", class_="act"),
            " ",
            tag("a", "Cancel", href=back),
        ),
        tag("p", "The same: ", code(command), ".", note, class_="quiet"),
        status=wrong,
    )  # fmt: skip


def _field(label: str, name: str, value: str) -> Child:
    field = tag("input", name=name, value=value, required=True, autocomplete="off",
                spellcheck="false", size=32)  # fmt: skip
    return tag("label", label, field)
