"""Says that a destination stands still until a person resumes it, asks that person, and does so."""

import structlog
from starlette.responses import RedirectResponse, Response

from observe.console.control_session import control_path
from observe.console.page_request import PageRequest
from observe.console.parts import wording
from observe.console.parts.layout import Page, confirm_form, still_page
from observe.console.parts.markup import Child, fragment, tag
from observe.console.parts.pieces import code
from shared.config.destination import Destination
from shared.flow.flow import FlowState
from shared.flow.flow_record import FlowRecord

log = structlog.get_logger()

PATH = "/destinations/resume"
# What is true of each halt, and what to do before one goes on.
_SAYS = {
    "paused": "Somebody has paused it. Its events wait in Kafka and go out in their order.",
    "held": "It refused one request after another (401, 403, 404), so its events are held. Mend its"
    " address or its credentials first: if it still refuses, it is held again.",
    "disabled": "It is given up, and its events become dead letters. Resuming rescues what comes"
    " from now on; what is dead already is sent again from the page of dead letters.",
}


def halt_of(destination: Destination | None, flow: FlowRecord | None) -> str:
    """Paused, held, disabled, or nothing: only a person ends these."""
    if destination is None:
        return ""
    if destination.is_disabled:
        return "disabled"
    if destination.is_paused:
        return "paused"
    # Delivery says so until its next request; what a person has said since counts.
    if flow is None or flow.since_ms <= destination.resumed_at_ms:
        return ""
    return flow.state.value if flow.state in {FlowState.HELD, FlowState.DISABLED} else ""


def halt_fact(
    destination: Destination | None, flow: FlowRecord | None, *, may_resume: bool
) -> Child:
    """The halt as the page of its destination says it; nothing when there is none."""
    halt = halt_of(destination, flow)
    if destination is None or not halt:
        return ""
    path = f"{PATH}?stream={destination.stream}&destination={destination.name}"
    link: Child = tag("a", "Resume …", href=path) if may_resume else ""
    return fragment(tag("span", f"{halt}, until a person resumes it", class_="warn"), " ", link)


async def resume_page(asked: PageRequest) -> Page:
    destination = asked.destination
    halt = halt_of(destination, asked.context.flows.get(destination.id))
    view = asked.context.destination(destination.id)
    waiting = view.backlog_events if view else 0
    # Asked for in any case: the gateway may refuse whoever looks.
    version = await asked.control.version(*control_path(destination))
    name, path = code(destination.id), f"/streams/{destination.id}"
    content = (
        (
            tag("h1", "Resume ", name, "?"),
            tag("p", _SAYS[halt]),
            tag(
                "p",
                f"{wording.plural(waiting, 'event')} on the way to it or waiting for it.",
                class_="quiet",
            ),
            confirm_form(
                PATH,
                asked.around,
                yes="Resume it",
                no="Leave it",
                back=path,
                stream=destination.stream,
                destination=destination.name,
                version=version,
            ),
        )
        if halt
        else (
            tag("h1", name, " goes on"),
            tag("p", "Nothing holds it back that a person would have to end."),
            tag("p", tag("a", "Back to it", href=path)),
        )
    )
    return still_page("Resume a destination", "/destinations", "confirm", content)


async def resume(asked: PageRequest) -> Response:
    destination = asked.destination
    log.info("destination.resumed", key_id=asked.viewer.key_id, destination=destination.id)
    path, version = control_path(destination), asked.field("version")
    await asked.control.change("POST", *path, action="resume", version=version)
    await asked.wait_until(lambda now: now.configured(destination.id) != destination)
    return RedirectResponse(f"/streams/{destination.id}", status_code=303)
