"""Tries, pauses or removes a destination after a person has confirmed it."""

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
# For each halt: its facts, and what to do before a try.
_SAYS = {
    "paused": "Somebody has paused it. Its events wait in Kafka and will go out in order.",
    "held": "It refused one request after another (401, 403, 404), so its events are held. First"
    " correct its address or its credentials: if it still refuses, it is held again.",
    "blocked": "It gets its stream in order, and one event blocks all later ones. Hifi retries that"
    " event every few minutes until it is taken or given up. Now Hifi tries it at once.",
    "disabled": "Hifi has given it up, and its events become dead letters. Resuming it saves future"
    " events. Redrive the earlier ones from the page of dead letters.",
    "failing": "Hifi stopped sending because it kept failing. Now one small request tries it at"
    " once; after three successes all events flow. If it is still down, Hifi waits 30 s again.",
    "rate-limited": "It asked Hifi to wait. Now Hifi sends at once, despite that request.",
}


def halt_of(destination: Destination | None, flow: FlowRecord | None) -> str:
    """Return why a destination is halted, if a person can end the halt; otherwise nothing."""
    if destination is None:
        return ""
    if destination.is_disabled:
        return "disabled"
    if destination.is_paused:
        return "paused"
    # Delivery reports a halt until its next request, even if a person has ended the halt already.
    heard = heard_of(destination, flow)
    if heard and heard.flow.is_blocked and not (heard.flow.is_held or heard.flow.disabled_at_ms):
        return "blocked"
    return _HALTS.get(heard.state, "") if heard else ""


def halt_fact(
    destination: Destination | None, flow: FlowRecord | None, *, may_resume: bool
) -> Child:
    """Return the halt as the destination's page shows it; nothing when there is none."""
    halt = halt_of(destination, flow)
    if destination is None or not halt:
        return ""
    link: Child = tag("a", "Try now …", href=path_for(RESUME, destination)) if may_resume else ""
    until_ms = flow.until_ms if flow else 0
    if halt in {"paused", "disabled"}:
        ends = "until a person tries it now"
    else:
        # Hifi tries one event of a held destination from time to time, too.
        ends = f"next try at {wording.clock(until_ms)}" if until_ms else "until it accepts an event"
    return fragment(tag("span", f"{halt}, {ends}", class_="warn"), " ", link)


def path_for(what: str, destination: Destination) -> str:
    """Return the path of the page that asks before the change."""
    return f"{what}?stream={destination.stream}&destination={destination.name}"


def changes_note(destination: Destination, *, may_change: bool) -> Safe:
    """Return links to the pages that change a destination."""
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
        tag("p", "It is not halted, so there is nothing to resume."),
        tag("p", tag("a", "Back to the destination", href=f"/streams/{destination.id}")),
    )
    return still_page("Try a destination now", "/destinations", "confirm", content)


async def pause_page(asked: PageRequest) -> Page:
    return await _ask(
        asked,
        ("Pause ", "?", "Pause it"),
        "Hifi sends it nothing more until somebody resumes it with Try now. Its events wait in"
        " Kafka for as long as the stream keeps them, and then go out in order.",
        _same("pause", asked.destination),
    )


async def remove_page(asked: PageRequest) -> Page:
    return await _ask(
        asked,
        ("Remove ", "?", "Remove it"),
        "Hifi sends it nothing more, and events that wait for a retry become dead letters. If you"
        " create it again under this name within 37 days, it resumes where it stopped.",
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
        also=fragment(f"Backlog: {backlog}, queued or waiting for a retry. ", also),
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
