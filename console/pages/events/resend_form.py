"""The form on the page of an event that sends it again, and its action."""

from http import HTTPStatus
from urllib.parse import urlencode

import structlog
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from console.page_request import PageRequest
from console.parts.layout import form, render, still_page
from console.parts.markup import NOTHING, Safe, fragment, tag
from console.parts.pieces import code, event_path
from shared.retry.dead_letter import Place
from shared.retry.resend import LEFT_ALONE
from shared.runtime.control_client import RefusedError
from shared.runtime.kafka.lookup.event_search import FoundEvent

log = structlog.get_logger()

PATH = "/events/resend"
# The outcomes of at most this many destinations fit into the address.
_TOLD_MAX = 50


def send_again_form(found: FoundEvent, asked: PageRequest) -> Safe:
    """Return a button for one destination or all of them, and the command that does the same."""
    envelope = found.envelope
    names = _names(asked, envelope.stream)
    if not names:
        return NOTHING
    place = str(Place(envelope.origin.partition, envelope.origin.offset))
    # People paste this into a shell, so name the event's place, not its id, which the sender chose.
    command = f"hifi events resend {envelope.stream} --place {place}"
    if not asked.viewer.may_change:
        says = " sends it again, with a key of the scope admin."
        return tag("p", code(command), says, class_="quiet")
    options = [tag("option", "all that have taken it or for which it was given up", value="")]
    options += [tag("option", name, value=name) for name in names]
    hidden = {
        "csrf": asked.around.csrf,
        "stream": envelope.stream,
        "id": envelope.event_id,
        "place": place,
    }
    button = form(
        "post",
        PATH,
        hidden,
        tag("label", "Send it again to ", tag("select", options, name="destination")),
        tag("button", "Send again", type="submit"),
        class_="row card pad",
    )
    note = tag("p", "Or: ", code(f"{command} --destination NAME"),
               ". It is sent within half a minute, under the same id.", class_="quiet")  # fmt: skip
    return fragment(button, note)


async def resend(asked: PageRequest) -> Response:
    """Send the event again if the gateway lets the viewer; otherwise show the refusal."""
    stream, event_id = asked.field("stream"), asked.fields.get("id", "")
    if stream not in asked.streams:
        raise HTTPException(404, "There is no such stream, or it is not yours.")
    place, destination = asked.field("place"), asked.field("destination")
    log.info(
        "event.resent",
        key_id=asked.viewer.key_id,
        stream=stream,
        event_id=event_id,
        place=place,
        destination=destination,
    )
    back = event_path(stream, event_id)
    try:
        outcomes = await asked.control.resend(stream, place=place, destination=destination)
    except RefusedError as refusal:
        if refusal.status == HTTPStatus.UNAUTHORIZED:
            raise
        page = still_page(
            "Not sent again",
            "/events",
            "refused",
            tag("h1", "Not sent again"),
            tag("p", refusal.detail),
            tag("p", tag("a", "Back to the event", href=back)),
            status=refusal.detail,
        )
        return HTMLResponse(render(page, asked.around), status_code=refusal.status)
    listed = sorted(outcomes.items(), key=lambda each: each[1] != "resent")[:_TOLD_MAX]
    sent = urlencode({"sent": ",".join(f"{name}:{what}" for name, what in listed)})
    return RedirectResponse(f"{back}&{sent}", status_code=303)


def sent_note(asked: PageRequest) -> str:
    """Report the event's outcome at each destination, without repeating text from the address."""
    names = set(_names(asked, asked.field("stream")))
    pairs = (pair.partition(":") for pair in asked.field("sent").split(","))
    outcomes = {name: what for name, _, what in pairs if name in names}
    resent = [name for name, what in outcomes.items() if what == "resent"]
    sentences = (
        [f"Will be sent again to {' and '.join(resent)} within half a minute."] if resent else []
    )
    sentences += [
        f"Not sent to {name}: {LEFT_ALONE[what]}."
        for name, what in outcomes.items()
        if what in LEFT_ALONE
    ]
    return " ".join(sentences)


def _names(asked: PageRequest, stream: str) -> list[str]:
    there = asked.context.configuration.destinations_of(stream)
    return sorted(each.name for each in there) if stream in asked.streams else []
