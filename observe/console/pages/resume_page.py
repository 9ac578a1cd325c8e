"""Says what keeps a destination back, asks a person whether to try it now, and has it tried."""

import structlog
from starlette.responses import RedirectResponse, Response

from observe.console.control_session import control_path
from observe.console.page_request import PageRequest
from observe.console.parts import wording
from observe.console.parts.layout import Page, confirm_form, still_page
from observe.console.parts.markup import Child, fragment, tag
from observe.console.parts.pieces import code
from observe.lag.trouble import heard_of
from shared.config.destination import Destination
from shared.flow.flow import FlowState
from shared.flow.flow_record import FlowRecord

log = structlog.get_logger()

PATH = "/destinations/resume"
_HALTS = {
    FlowState.HELD: "held",
    FlowState.DISABLED: "disabled",
    FlowState.OPEN: "failing",
    FlowState.HALF_OPEN: "failing",
    FlowState.THROTTLED: "rate-limited",
}
# What is true of each halt, and what to do before it is tried.
_SAYS = {
    "paused": "Somebody has paused it. Its events wait in Kafka and go out in their order.",
    "held": "It refused one request after another (401, 403, 404), so its events are held. Mend its"
    " address or its credentials first: if it still refuses, it is held again.",
    "blocked": "It gets its stream in order, and one event holds up all behind it: each is tried"
    " again every few minutes until it is taken or given up. It is tried at once.",
    "disabled": "It is given up, and its events become dead letters. Resuming rescues what comes"
    " from now on; what is dead already is sent again from the page of dead letters.",
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
    # Delivery says so until its next request; what a person has said since counts.
    heard = heard_of(destination, flow)
    if heard and heard.flow.is_blocked and not (heard.flow.is_held or heard.flow.disabled_at_ms):
        return "blocked"
    return _HALTS.get(heard.state, "") if heard else ""


def halt_fact(
    destination: Destination | None, flow: FlowRecord | None, *, may_resume: bool
) -> Child:
    """The halt as the page of its destination says it; nothing when there is none."""
    halt = halt_of(destination, flow)
    if destination is None or not halt:
        return ""
    path = f"{PATH}?stream={destination.stream}&destination={destination.name}"
    link: Child = tag("a", "Try now …", href=path) if may_resume else ""
    until_ms = flow.until_ms if flow else 0
    ends = "until a person says to try it now"
    if halt in {"failing", "rate-limited"} and until_ms:
        ends = f"next try at {wording.clock(until_ms)}"
    return fragment(tag("span", f"{halt}, {ends}", class_="warn"), " ", link)


async def resume_page(asked: PageRequest) -> Page:
    destination = asked.destination
    halt = halt_of(destination, asked.context.flows.get(destination.id))
    view = asked.context.destination(destination.id)
    waiting = view.backlog_events if view else 0
    # Asked for in any case: the gateway may refuse whoever looks.
    version = await asked.control.version(*control_path(destination))
    name, path = code(destination.id), f"/streams/{destination.id}"
    backlog = f"{wording.plural(waiting, 'event')} queued or waiting for it."
    content = (
        (
            tag("h1", "Try ", name, " now?"),
            tag("p", _SAYS[halt]),
            tag("p", f"{backlog} {wording.WHAT_FOLLOWS}", class_="quiet"),
            confirm_form(
                PATH,
                asked.around,
                yes="Try it now",
                no="Cancel",
                back=path,
                stream=destination.stream,
                destination=destination.name,
                version=version,
            ),
        )
        if halt
        else (
            tag("h1", name, " is resumed"),
            tag("p", "Nothing holds it back that a person could end."),
            tag("p", tag("a", "Back to it", href=path)),
        )
    )
    return still_page("Try a destination now", "/destinations", "confirm", content)


async def resume(asked: PageRequest) -> Response:
    destination = asked.destination
    log.info("destination.resumed", key_id=asked.viewer.key_id, destination=destination.id)
    path, version = control_path(destination), asked.field("version")
    await asked.control.change("POST", *path, action="resume", version=version)
    await asked.wait_until(lambda now: now.configured(destination.id) != destination)
    return RedirectResponse(f"/streams/{destination.id}", status_code=303)
