"""The form that creates a destination or changes its settings, as the JSON of the API."""

from starlette.responses import Response

from console.control_session import control_path
from console.page_request import PageRequest
from console.pages.changes.form_pages import (
    FormPage,
    document_field,
    json_text,
    text_field,
    write_settings,
)
from console.parts.layout import Page
from console.parts.markup import fragment
from console.parts.pieces import code
from shared.event.topics import destination_id

SETTINGS, NEW = "/destinations/settings", "/destinations/new"
# Fields that the page fills in itself, or that the gateway adds to the settings.
_NOT_SET = {"stream", "name", "warning"}
_BEGIN = '{\n  "url": "https://"\n}'
_LABEL = "Settings, as JSON"


async def settings_page(asked: PageRequest) -> Page:
    """Show the form with a destination's settings, to change them."""
    shown, version = await asked.control.seen(*control_path(asked.destination))
    text = json_text({name: shown[name] for name in shown if name not in _NOT_SET})
    return _settings_form(asked, text, version).page(asked)


async def new_page(asked: PageRequest) -> Page:
    return _new_form(asked, _BEGIN).page(asked)


async def change_settings(asked: PageRequest) -> Response:
    """Write the settings, or show the form again with the error."""
    version, path = asked.field("version"), control_path(asked.destination)
    shown = _settings_form(asked, asked.field("settings"), version)
    return await _write(asked, shown, *path, version=version)


async def make(asked: PageRequest) -> Response:
    """Write the settings of a new destination."""
    stream, name = asked.field("stream"), asked.field("destination")
    shown = _new_form(asked, asked.field("settings"))
    if asked.context.configured(destination_id(stream, name)) is not None:
        return shown.again(asked, f"{stream} already has a destination {name}.", 409)
    if not (stream and name):
        return shown.again(asked, "Enter a stream and a name.", 422)
    return await _write(asked, shown, "streams", stream, "destinations", name, version="")


async def _write(asked: PageRequest, shown: FormPage, *path: str, version: str) -> Response:
    _, stream, _, name = path
    known = destination_id(stream, name)
    before = asked.context.configured(known)
    return await write_settings(
        asked,
        shown,
        "destination.written",
        *path,
        version=version,
        seen=lambda now: now.configured(known) != before,
        back=f"/streams/{known}",
        destination=known,
    )


def _new_form(asked: PageRequest, text: str) -> FormPage:
    return FormPage(
        title="New destination",
        heading="New destination",
        here="/destinations",
        content=(
            text_field("Stream", "stream", asked.field("stream"), required=True),
            text_field("Name", "destination", asked.field("destination"), required=True),
            document_field(_LABEL, "settings", text),
        ),
        yes="Create",
        back="/destinations",
        command="hifi destinations put STREAM NAME URL",
    )


def _settings_form(asked: PageRequest, text: str, version: str) -> FormPage:
    stream, name = asked.field("stream"), asked.field("destination")
    return FormPage(
        title="Settings",
        heading=fragment("Settings of ", code(f"{stream}/{name}")),
        here="/destinations",
        content=(document_field(_LABEL, "settings", text),),
        yes="Save",
        back=f"/streams/{stream}/{name}",
        command=f"hifi destinations update {stream} {name} --set NAME=VALUE",
        note=" A placeholder stands for each secret. Leave it unchanged to keep the secret.",
        hidden={"version": version, "stream": stream, "destination": name},
    )
