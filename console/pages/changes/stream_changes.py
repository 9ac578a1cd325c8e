"""Forms that create a stream, change its settings, and remove it after a confirmation."""

from starlette.responses import Response

from console.forms import DOCUMENT_BYTES_MAX
from console.page_context import PageContext
from console.page_request import PageRequest
from console.pages.changes.form_pages import (
    FormPage,
    document_field,
    json_text,
    text_field,
    write_settings,
)
from console.pages.changes.questions import ChangeByForm, ChangeQuestion, done, same
from console.parts.layout import Page, still_page
from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from console.parts.pieces import code, links_to, ways
from shared import wording
from shared.event.topics import STREAM_PARTITIONS
from shared.proof.balance import Balance

STREAMS = "/streams"
# The names of streams have no colon, so these paths belong to none.
NEW, SETTINGS, REMOVE = (f"{STREAMS}:{what}" for what in ("new", "settings", "remove"))
# Fields that the page fills in itself.
_NOT_SET = {"name", "tenant"}
_BEGIN = {"key_pointer": "", "partition_count": STREAM_PARTITIONS, "schema": None}
_LABEL = "Settings, as JSON"
_NOTE = (
    " key_pointer says where an event has its ordering key, such as /user/id. schema is a JSON"
    " Schema that every event must match. The number of Kafka partitions can only grow."
)


def stream_links(name: str, context: PageContext, *, may_change: bool) -> Safe:
    """Return links to the pages that change an existing stream."""
    if not may_change or name not in context.configuration.streams:
        return NOTHING
    links = [
        ("New destination …", f"/destinations/new?stream={name}"),
        ("Change settings …", f"{SETTINGS}?stream={name}"),
        ("Remove …", f"{REMOVE}?stream={name}"),
    ]
    return tag("p", ways(links))


async def new_page(asked: PageRequest) -> Page:
    return _new_form(asked, json_text(_BEGIN)).page(asked)


async def make(asked: PageRequest) -> Response:
    name, shown = asked.field("stream"), _new_form(asked, asked.field("settings"))
    if not name:
        return shown.again(asked, "Enter a name.", 422)
    if name in asked.streams and name in asked.context.configuration.streams:
        return shown.again(asked, f"A stream {name} already exists.", 409)
    return await _write(asked, shown, name, version="")


async def settings_page(asked: PageRequest) -> Page:
    """Show the form with a stream's settings, to change them."""
    shown, version = await asked.control.seen("streams", asked.stream.name)
    text = json_text({name: shown[name] for name in shown if name not in _NOT_SET})
    return _settings_form(asked, text, version).page(asked)


async def change_settings(asked: PageRequest) -> Response:
    """Write the settings, or show the form again with the error."""
    name, version = asked.stream.name, asked.field("version")
    shown = _settings_form(asked, asked.field("settings"), version)
    return await _write(asked, shown, name, version=version)


async def remove_page(asked: PageRequest) -> Page:
    """Ask, and show what would be lost; or list what must be removed before the stream."""
    name, known = asked.stream.name, asked.context.configuration
    destinations = sorted(each.id for each in known.destinations_of(name))
    pipelines = sorted({each.name for each in known.pipelines_at(name)})
    if destinations or pipelines:
        return _in_use_page(name, destinations, pipelines)
    view = asked.context.stream(name)
    counted = wording.plural(view.acked if view else 0, "event")
    question = ChangeQuestion(
        name=name,
        words=("Remove ", "?", "Remove"),
        says=(
            f"It accepts no more events. {_lost(asked, name)} The name stays yours, and the"
            " stream's dead letters and receipts remain readable."
        ),
        also=fragment(f"{counted} acknowledged in it so far. ",
                      same(f"hifi streams delete {name}")),
        here=STREAMS,
        back=f"{STREAMS}/{name}",
        at=("streams", name),
        fields={"stream": name},
    )  # fmt: skip
    return await question.page(asked)


async def remove(asked: PageRequest) -> Response:
    name, version = asked.stream.name, asked.field("version")
    return await done(
        asked,
        "stream.removed",
        asked.control.change("DELETE", "streams", name, version=version),
        seen=lambda now: name not in now.configuration.streams,
        back=STREAMS,
        stream=name,
    )


def _lost(asked: PageRequest, name: str) -> str:
    """Count the events left for removed destinations, as `hifi streams delete` does."""
    seen = asked.context.overview.removed
    left = sum((gone.balance for gone in seen if gone.stream == name), Balance())
    return (
        f"{wording.plural(left.queued, 'queued event')} will not be sent,"
        f" {wording.count(left.waiting)} that wait for a retry become dead letters, and there"
        f" are already {wording.plural(left.dead, 'dead letter')}."
    )


def _in_use_page(name: str, destinations: list[str], pipelines: list[str]) -> Page:
    content: list[Child] = [
        tag("h1", code(name), " is in use"),
        tag("p", "Remove these first: they read its events or write to it.", class_="lead"),
        tag("p", "Destinations: ", links_to(destinations, STREAMS)) if destinations else NOTHING,
        tag("p", "Pipelines: ", links_to(pipelines, "/pipelines")) if pipelines else NOTHING,
        tag("p", tag("a", "Back to the stream", href=f"{STREAMS}/{name}")),
    ]
    return still_page(f"{name} is in use", STREAMS, "confirm", *content)


async def _write(asked: PageRequest, shown: FormPage, name: str, *, version: str) -> Response:
    before = asked.context.configuration.streams.get(name)
    return await write_settings(
        asked,
        shown,
        "stream.written",
        *("streams", name),
        version=version,
        seen=lambda now: now.configuration.streams.get(name) != before,
        back=f"{STREAMS}/{name}",
        stream=name,
    )


def _new_form(asked: PageRequest, text: str) -> FormPage:
    return FormPage(
        title="New stream",
        heading="New stream",
        here=STREAMS,
        content=(
            text_field("Name", "stream", asked.field("stream"), required=True),
            document_field(_LABEL, "settings", text),
        ),
        yes="Create",
        back=STREAMS,
        command="hifi streams put NAME --key-pointer POINTER --schema FILE",
        note=_NOTE,
    )


def _settings_form(asked: PageRequest, text: str, version: str) -> FormPage:
    name = asked.field("stream")
    return FormPage(
        title="Settings",
        heading=fragment("Settings of ", code(name)),
        here=STREAMS,
        content=(document_field(_LABEL, "settings", text),),
        yes="Save",
        back=f"{STREAMS}/{name}",
        command=f"hifi streams put {name} --key-pointer POINTER --schema FILE",
        note=_NOTE,
        hidden={"version": version, "stream": name},
    )


CHANGES = {
    NEW: ChangeByForm(new_page, make, DOCUMENT_BYTES_MAX),
    SETTINGS: ChangeByForm(settings_page, change_settings, DOCUMENT_BYTES_MAX),
    REMOVE: ChangeByForm(remove_page, remove),
}
