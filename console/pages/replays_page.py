"""Shows the replays of a stream and their progress; forms start and cancel them.

The events of a replay are counted before it starts. It goes on without the person who
started it.
"""

import re
import uuid
from collections.abc import Mapping
from shlex import quote
from typing import Any
from urllib.parse import urlencode

import structlog
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from console.page_request import PageRequest
from console.pages.changes.form_pages import FormPage, NotReadError, text_field
from console.pages.changes.questions import ChangeByForm, same
from console.parts.layout import Page, confirm_form, render, still_page
from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from console.parts.pieces import (
    choice,
    code,
    done_note,
    facts_list,
    figure,
    letters_path,
    nothing_yet,
    pager,
    table,
    ways,
)
from shared import wording
from shared.runtime.control_client import RefusedError

log = structlog.get_logger()

PATH, STREAMS = "/replays", "/streams"
NEW, CANCEL = f"{PATH}/new", f"{PATH}/cancel"
# The other fields of the form, as the gateway names them; people type times as UTC.
_TIMES, _WHICH, _RATE = ("from", "to"), ("key", "event"), "rate_per_s"
_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def replays_path(stream: str, **more: str) -> str:
    return f"{PATH}?{urlencode({'stream': stream, **more})}"


async def replays_page(asked: PageRequest) -> Page:
    """Show a stream's replays, or those to one of its destinations, newest first."""
    stream, destination = _stream(asked), asked.field("destination")
    picked = {"destination": destination} if destination else {}
    before = asked.field("before")
    listing = await asked.control.replays(stream, before=before, **picked)
    older = replays_path(stream, **picked, before=listing["next"]) if listing["next"] else ""
    count = wording.plural(len(listing["replays"]), "replay")
    newest = replays_path(stream, **picked)
    content: list[Child] = [
        tag("p", tag("a", stream, href=f"{STREAMS}/{stream}"), " / replays", class_="crumbs"),
        tag("h1", f"Replays of {stream}", f" to {destination}" if destination else ""),
        done_note("The replay has started; you may leave now." if asked.field("begun") else ""),
        tag("p", "Replays of the last 30 days, newest first. A replay sends events to a"
            " destination again; each is queued for half a minute first.", class_="lead"),
        _begin(asked, stream, destination),
        _rows(asked, stream, listing["replays"]),
        pager([("Newest" if before else "Reload", newest), ("Older", older)], "More replays"),
    ]  # fmt: skip
    return still_page("Replays", STREAMS, "replays", content, status=f"{count} shown")


async def new_page(asked: PageRequest) -> Page:
    return _form(asked).page(asked)


async def make(asked: PageRequest) -> Response:
    """Count the requested events; start the replay once a person confirms the count."""
    stream, shown = asked.stream.name, _form(asked)
    try:
        order = _order(asked)
        if not asked.field("confirmed"):
            counted = await asked.control.order_replay(stream, {**order, "dry_run": True})
            return HTMLResponse(render(_question(asked, order, counted["count"]), asked.around))
        log.info("replay.ordered", key_id=asked.viewer.key_id, stream=stream, order=order)
        await asked.control.order_replay(stream, order)
    except NotReadError as error:
        return shown.again(asked, str(error), 422)
    except RefusedError as refusal:
        return shown.again(asked, refusal.detail, refusal.status)
    return RedirectResponse(replays_path(stream, begun="yes"), status_code=303)


async def cancel_page(asked: PageRequest) -> Page:
    stream, replay_id = _stream(asked), _replay_id(asked)
    replay = await asked.control.replay(stream, replay_id)
    to_go = wording.plural(replay["count"] - replay["read"], "event")
    return still_page(
        "Cancel a replay",
        STREAMS,
        "confirm",
        tag("h1", "Cancel ", code(replay_id), "?"),
        tag("p", f"{to_go} of it are not read yet, and will not be sent. Events that are already"
            " queued will still be sent."),
        confirm_form(CANCEL, asked.around, yes="Cancel the replay", no="Let it continue",
                     back=replays_path(stream), stream=stream, id=replay_id),
        tag("p", same(f"hifi replays cancel {stream} {replay_id}"), class_="quiet"),
    )  # fmt: skip


async def cancel(asked: PageRequest) -> Response:
    stream, replay_id = _stream(asked), _replay_id(asked)
    log.info("replay.cancelled", key_id=asked.viewer.key_id, stream=stream, replay=replay_id)
    await asked.control.cancel_replay(stream, replay_id)
    return RedirectResponse(replays_path(stream), status_code=303)


def _stream(asked: PageRequest) -> str:
    """Return the requested stream, even a removed one, since its replays are still kept."""
    stream = asked.field("stream")
    if stream not in asked.streams:
        raise HTTPException(404, "There is no such stream, or it is not yours.")
    return stream


def _replay_id(asked: PageRequest) -> str:
    replay_id = asked.field("id")
    if not _ID.fullmatch(replay_id):
        raise HTTPException(404, "There is no such replay.")
    return replay_id


def _begin(asked: PageRequest, stream: str, destination: str) -> Safe:
    """Return the link to the form; if the viewer may not use it, the command for somebody else."""
    if stream not in asked.context.configuration.streams:
        return NOTHING
    if not asked.viewer.may_change:
        command = code(f"hifi replays create {stream} --destination NAME --from 2h")
        return tag("p", command, " starts one, with a key of the scope admin.", class_="quiet")
    path = urlencode({"stream": stream, "destination": destination})
    return tag("p", ways([("Replay a span …", f"{NEW}?{path}")]))


def _rows(asked: PageRequest, stream: str, replays: list[dict[str, Any]]) -> Safe:
    if not replays:
        return nothing_yet("No replay in the last 30 days.")
    heads = ("Replay", "Destination", "State", "To go", "Queued", "Deleted", "Dead letters",
             "Cancel")  # fmt: skip
    rows = [_row(asked, stream, replay) for replay in replays]
    return table(heads, rows, caption=f"Replays of {stream}, newest first", numbers_from=3)


def _row(asked: PageRequest, stream: str, replay: Mapping[str, Any]) -> list[Child]:
    destination, is_running = replay["destination"], replay["state"] == "running"
    why = replay["waits_because"] or replay["failed_because"]
    cancels = f"{CANCEL}?{urlencode({'stream': stream, 'id': replay['id']})}"
    # All dead letters of the destination since the replay started, even those of other events.
    died = letters_path(stream=stream, destination=destination, **{"from": replay["created_at"]})
    return [
        fragment(code(replay["id"]), tag("span", _span(replay), class_="why under")),
        tag("a", destination, href=f"{STREAMS}/{stream}/{destination}"),
        # In one element, so that a phone does not split it.
        tag("span", _state(replay), tag("span", f" {why}", class_="why") if why else NOTHING),
        wording.count(replay["count"] - replay["read"] if is_running else 0),
        wording.count(replay["sent"]),
        wording.count(replay["gone"]),
        figure("show", died),
        tag("a", "Cancel …", href=cancels) if is_running and asked.viewer.may_change else "",
    ]


def _state(replay: Mapping[str, Any]) -> Safe:
    waits = replay["state"] == "running" and replay["waits_because"]
    kinds = {"done": "good", "failed": "bad"}
    return tag("span", "waits:" if waits else replay["state"], class_=kinds.get(replay["state"]))


def _span(replay: Mapping[str, Any]) -> str:
    """Describe which events the replay covers."""
    clauses = [f"stored since {replay['from'] or 'the beginning'}"]
    clauses += [f"before {replay['to'] or replay['created_at']}"]
    clauses += [f"{name} {replay[name]}" for name in _WHICH if replay[name] is not None]
    return ", ".join([*clauses, f"at most {replay['rate_per_s']:g}/s"])


def _form(asked: PageRequest) -> FormPage:
    stream, chosen = asked.stream.name, asked.field("destination")
    names = sorted(each.name for each in asked.context.configuration.destinations_of(stream))

    def field(label: str, name: str, hint: str = "", **more: Any) -> Safe:
        return text_field(label, name, asked.field(name), hint=hint, **more)

    def time_field(label: str, name: str, hint: str) -> Safe:
        value = asked.field(name).removesuffix("Z")
        return text_field(label, name, value, hint=hint, type="datetime-local")

    return FormPage(
        title="Replay",
        heading=fragment("Send events of ", code(stream), " again"),
        here=STREAMS,
        content=(
            choice("Destination", "destination", names, chosen),
            time_field("Stored since (UTC)", "from", "Required unless you give an event id."),
            time_field("Stored before (UTC)", "to", "Leave empty for now."),
            field("Only this ordering key", "key"),
            field("Only this event id", "event"),
            field("Events per second, at most", _RATE, "Leave empty for 100.",
                  size=8, inputmode="decimal"),
        ),
        yes="Count them …",
        back=replays_path(stream),
        command=f"hifi replays create {stream} --destination NAME --from 2h --dry-run",
        note=" Hifi counts the events first, and sends nothing before you confirm.",
        hidden={"stream": stream},
    )  # fmt: skip


def _order(asked: PageRequest) -> dict[str, Any]:
    """The typed values, in the gateway's format."""
    order: dict[str, Any] = {"destination": asked.field("destination")}
    order |= {name: f"{at}Z" for name in _TIMES if (at := asked.field(name).removesuffix("Z"))}
    order |= {name: text for name in _WHICH if (text := asked.field(name))}
    if rate := asked.field(_RATE):
        try:
            order[_RATE] = float(rate)
        except ValueError:
            raise NotReadError(f"{rate[:40]!r} is not a number of events per second.") from None
    if replay_id := asked.field("id"):
        order["id"] = replay_id
    if not order.keys() & {"from", "event"}:
        raise NotReadError("Enter a start time or an event id.")
    return order


def _question(asked: PageRequest, order: Mapping[str, Any], count: int) -> Page:
    """Ask for confirmation of a replay; confirming twice starts only one."""
    stream, destination = asked.stream.name, order["destination"]
    events = wording.plural(count, "event")
    asks = f"Send {events} to {destination} again?"
    which: list[tuple[str, Child]] = [(name, code(str(value))) for name, value in order.items()]
    options = {name.removesuffix("_per_s"): value for name, value in order.items()}
    command = " ".join(f"--{name} {quote(str(value))}" for name, value in options.items())
    says = (
        "Live delivery continues meanwhile. Each request is labelled hifi-replay and as a possible"
        " duplicate."
    )
    if order.keys() & set(_WHICH):
        says = f"Hifi sends only those of the {events} with the given key or id. {says}"
    return still_page(
        "Replay",
        STREAMS,
        "confirm",
        tag("h1", asks),
        facts_list(which),
        tag("p", says),
        confirm_form(NEW, asked.around, yes="Send them again", no="Cancel",
                     back=replays_path(stream), stream=stream, confirmed=count,
                     **{"id": uuid.uuid4().hex, **order}),
        tag("p", same(f"hifi replays create {stream} {command}"), class_="quiet"),
        status=asks,
    )  # fmt: skip


CHANGES = {NEW: ChangeByForm(new_page, make), CANCEL: ChangeByForm(cancel_page, cancel)}
