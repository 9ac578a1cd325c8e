"""Asks a person before a destination is tried now, paused or removed, and has it done."""

from collections.abc import Awaitable
from typing import Any

from starlette.responses import Response

from console.control_session import control_path
from console.forms import DOCUMENT_BYTES_MAX
from console.page_request import PageRequest
from console.pages.changes.questions import ChangeByForm, ChangeQuestion, done, same
from console.pages.destinations.settings_form import (
    NEW,
    SETTINGS,
    change_settings,
    make,
    new_page,
    settings_page,
)
from console.parts.layout import Page, still_page
from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from console.parts.pieces import code, ways
from observe.lag.trouble import heard_of
from shared import wording
from shared.config.destination import Destination
from shared.flow.flow import FlowState
from shared.flow.flow_record import FlowRecord

RESUME = "/destinations/resume"
PAUSE, REMOVE = "/destinations/pause", "/destinations/remove"
_HALTS = {
    FlowState.HELD: "held",
    FlowState.DISABLED: "disabled",
    FlowState.OPEN: "failing",
    FlowState.HALF_OPEN: "failing",
    FlowState.RATE_LIMITED: "rate-limited",
}
# The facts about each halt, and the steps before a try.
_SAYS = {
    "paused": "Somebody has paused it. Its events wait in Kafka and go out in order.",
    "held": "It refused one request after another (401, 403, 404), so its events are held. Mend its"
    " address or its credentials first: if it still refuses, it is held again.",
    "blocked": "It gets its stream in order, and one event holds up all behind it: each is tried"
    " again every few minutes until it is taken or given up. It is tried at once.",
    "disabled": "It is given up, and its events become dead letters. Resuming rescues the events"
    " that come from now on; re-drive the others from the page of dead letters.",
    "failing": "It is left alone because it kept failing. One small request tries it at once; three"
    " answers open the way for all. If it is still down, it is left alone for 30 s again.",
    "rate-limited": "It has asked for a wait. It is sent to at once, whatever it has asked for.",
}


def halt_of(destination: Destination | None, flow: FlowRecord | None) -> str:
    """Paused, held, disabled, failing, rate-limited, or nothing: a person's word ends these."""
    if destination is None:
        return ""
    if destination.is_disabled:
        return "disabled"
    if destination.is_paused:
        return "paused"
    # Delivery reports the halt until its next request; a person's newer request takes precedence.
    heard = heard_of(destination, flow)
    if heard and heard.flow.is_blocked and not (heard.flow.is_held or heard.flow.disabled_at_ms):
        return "blocked"
    return _HALTS.get(heard.state, "") if heard else ""


def halt_fact(
    destination: Destination | None, flow: FlowRecord | None, *, may_resume: bool
) -> Child:
    """The halt in the words of its destination's page; nothing when there is none."""
    halt = halt_of(destination, flow)
    if destination is None or not halt:
        return ""
    link: Child = tag("a", "Try now …", href=path_for(RESUME, destination)) if may_resume else ""
    until_ms = flow.until_ms if flow else 0
    ends = "until a person says to try it now"
    if halt in {"failing", "rate-limited"} and until_ms:
        ends = f"next try at {wording.clock(until_ms)}"
    return fragment(tag("span", f"{halt}, {ends}", class_="warn"), " ", link)


def path_for(what: str, destination: Destination) -> str:
    """The path of the page that asks before the change."""
    return f"{what}?stream={destination.stream}&destination={destination.name}"


def changes_note(destination: Destination, *, may_change: bool) -> Safe:
    """Links to the changes of a destination."""
    if not may_change:
        return NOTHING
    links = [("Change settings …", SETTINGS), ("Pause …", PAUSE), ("Remove …", REMOVE)]
    wanted = [link for link in links if link[1] != PAUSE or not destination.is_paused]
    return tag("p", ways((says, path_for(path, destination)) for says, path in wanted))


async def resume_page(asked: PageRequest) -> Page:
    destination = asked.destination
    halt = halt_of(destination, asked.context.flows.get(destination.id))
    if halt:
        asks, also = ("Try ", " now?", "Try it now"), wording.WHAT_FOLLOWS
        return await _ask(asked, asks, _SAYS[halt], also)
    content = (
        tag("h1", code(destination.id), " is resumed"),
        tag("p", "Nothing holds it back that a person could end."),
        tag("p", tag("a", "Back to it", href=f"/streams/{destination.id}")),
    )
    return still_page("Try a destination now", "/destinations", "confirm", content)


async def pause_page(asked: PageRequest) -> Page:
    return await _ask(
        asked,
        ("Pause ", "?", "Pause it"),
        "Nothing more is sent to it until somebody says to try it now. Its events wait in Kafka,"
        " for as long as the stream keeps them, and then go out in order.",
        _same("pause", asked.destination),
    )


async def remove_page(asked: PageRequest) -> Page:
    return await _ask(
        asked,
        ("Remove ", "?", "Remove it"),
        "Nothing more is sent to it, and what waits to be tried again becomes dead letters. Made"
        " again under this name within 37 days, it goes on where it was.",
        _same("delete", asked.destination),
    )


async def _ask(asked: PageRequest, asks: tuple[str, str, str], says: str, also: Child) -> Page:
    destination = asked.destination
    view = asked.context.destination(destination.id)
    backlog = wording.plural(view.backlog_events if view else 0, "event")
    question = ChangeQuestion(
        name=destination.id,
        words=asks,
        says=says,
        also=fragment(f"{backlog} queued or waiting for it. ", also),
        here="/destinations",
        back=f"/streams/{destination.id}",
        at=control_path(destination),
        fields={"stream": destination.stream, "destination": destination.name},
    )
    return await question.page(asked)


def _same(command: str, destination: Destination) -> Safe:
    return same(f"hifi destinations {command} {destination.stream} {destination.name}")


async def resume(asked: PageRequest) -> Response:
    path, version = control_path(asked.destination), asked.field("version")
    change = asked.control.change("POST", *path, action="resume", version=version)
    return await _done(asked, "destination.resumed", change)


async def pause(asked: PageRequest) -> Response:
    path, version = control_path(asked.destination), asked.field("version")
    return await _done(
        asked,
        "destination.paused",
        asked.control.set_fields(*path, version=version, is_paused=True),
    )


async def remove(asked: PageRequest) -> Response:
    path, version = control_path(asked.destination), asked.field("version")
    change = asked.control.change("DELETE", *path, version=version)
    return await _done(
        asked, "destination.removed", change, back=f"/streams/{asked.destination.stream}"
    )


async def _done(
    asked: PageRequest, what: str, change: Awaitable[Any], *, back: str = ""
) -> Response:
    destination = asked.destination
    return await done(
        asked,
        what,
        change,
        seen=lambda now: now.configured(destination.id) != destination,
        back=back or f"/streams/{destination.id}",
        destination=destination.id,
    )


# The question and the change, by path.
CHANGES = {
    RESUME: ChangeByForm(resume_page, resume),
    PAUSE: ChangeByForm(pause_page, pause),
    REMOVE: ChangeByForm(remove_page, remove),
    SETTINGS: ChangeByForm(settings_page, change_settings, DOCUMENT_BYTES_MAX),
    NEW: ChangeByForm(new_page, make, DOCUMENT_BYTES_MAX),
}
