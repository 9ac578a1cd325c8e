"""Shows the replays of a stream and their progress; begins and ends them by forms.

A replay is counted before it begins, and goes on without the person who began it.
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
# Fields to ask for beside the destination, as the gateway names them; times are typed as UTC.
_TIMES, _WHICH, _RATE = ("from", "to"), ("key", "event"), "rate_per_s"
_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def replays_path(stream: str, **more: str) -> str:
    return f"{PATH}?{urlencode({'stream': stream, **more})}"


async def replays_page(asked: PageRequest) -> Page:
    """A stream's replays, or those to one of its destinations, the newest first."""
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
        done_note("It goes on by itself; you may leave this page." if asked.field("begun") else ""),
        tag("p", "Events that are sent to a destination again, newest first, for the last 30 days."
            " Each event is queued for half a minute before it leaves.", class_="lead"),
        _begin(asked, stream, destination),
        _rows(asked, stream, listing["replays"]),
        pager([("Newest" if before else "Look again", newest), ("Older", older)], "More replays"),
    ]  # fmt: skip
    return still_page("Replays", STREAMS, "replays", content, status=f"{count} shown")


async def new_page(asked: PageRequest) -> Page:
    return _form(asked).page(asked)


async def make(asked: PageRequest) -> Response:
    """Count the requested events; begin the replay once a person confirms the count."""
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
        tag("p", f"{to_go} of it are still to be looked at, and none of them is sent then. Queued"
            " events are sent."),
        confirm_form(CANCEL, asked.around, yes="Cancel it", no="Let it go on",
                     back=replays_path(stream), stream=stream, id=replay_id),
        tag("p", same(f"hifi replays cancel {stream} {replay_id}"), class_="quiet"),
    )  # fmt: skip


async def cancel(asked: PageRequest) -> Response:
    stream, replay_id = _stream(asked), _replay_id(asked)
    log.info("replay.cancelled", key_id=asked.viewer.key_id, stream=stream, replay=replay_id)
    await asked.control.cancel_replay(stream, replay_id)
    return RedirectResponse(replays_path(stream), status_code=303)


def _stream(asked: PageRequest) -> str:
    """The stream, also a removed one: its replays are there for as long as they are kept."""
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
    """The link to the form, or the command for people with the right."""
    if stream not in asked.context.configuration.streams:
        return NOTHING
    if not asked.viewer.may_change:
        command = code(f"hifi replays create {stream} --destination NAME --from 2h")
        return tag("p", command, " begins one, with a key of the scope admin.", class_="quiet")
    path = urlencode({"stream": stream, "destination": destination})
    return tag("p", ways([("Replay a span …", f"{NEW}?{path}")]))


def _rows(asked: PageRequest, stream: str, replays: list[dict[str, Any]]) -> Safe:
    if not replays:
        return nothing_yet("Nothing of it has been sent again in the last 30 days.")
    heads = ("Replay", "Destination", "State", "To go", "Queued", "Gone", "Dead letters", "End it")
    rows = [_row(asked, stream, replay) for replay in replays]
    return table(heads, rows, caption=f"Replays of {stream}, newest first", numbers_from=3)


def _row(asked: PageRequest, stream: str, replay: Mapping[str, Any]) -> list[Child]:
    destination, is_running = replay["destination"], replay["state"] == "running"
    why = replay["waits_because"] or replay["failed_because"]
    cancels = f"{CANCEL}?{urlencode({'stream': stream, 'id': replay['id']})}"
    # Its dead letters are among all that the destination has had since.
    died = letters_path(stream=stream, destination=destination, **{"from": replay["created_at"]})
    return [
        fragment(code(replay["id"]), tag("span", _span(replay), class_="why under")),
        tag("a", destination, href=f"{STREAMS}/{stream}/{destination}"),
        # In one piece, also on a phone.
        tag("span", _state(replay), tag("span", f" {why}", class_="why") if why else NOTHING),
        wording.count(replay["count"] - replay["read"] if is_running else 0),
        wording.count(replay["sent"]),
        wording.count(replay["gone"]),
        figure("look", died),
        tag("a", "Cancel …", href=cancels) if is_running and asked.viewer.may_change else "",
    ]


def _state(replay: Mapping[str, Any]) -> Safe:
    waits = replay["state"] == "running" and replay["waits_because"]
    kinds = {"done": "good", "failed": "bad"}
    return tag("span", "waits:" if waits else replay["state"], class_=kinds.get(replay["state"]))


def _span(replay: Mapping[str, Any]) -> str:
    """Describe the events that it was asked for."""
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
            time_field("Stored since (UTC)", "from", "Needed, unless an event is named."),
            time_field("Stored before (UTC)", "to", "Until now if it is not said."),
            field("Only this ordering key", "key"),
            field("Only this event id", "event"),
            field("Events per second, at most", _RATE, "100 if it is not said.",
                  size=8, inputmode="decimal"),
        ),
        yes="Count them …",
        back=replays_path(stream),
        command=f"hifi replays create {stream} --destination NAME --from 2h --dry-run",
        note=" It counts first, and nothing is sent before you say yes.",
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
            raise NotReadError(f"{rate[:40]!r} is no number of events per second.") from None
    if replay_id := asked.field("id"):
        order["id"] = replay_id
    if not order.keys() & {"from", "event"}:
        raise NotReadError("Say since when, or which event.")
    return order


def _question(asked: PageRequest, order: Mapping[str, Any], count: int) -> Page:
    """The question before a replay; sending it twice begins only one."""
    stream, destination = asked.stream.name, order["destination"]
    events = wording.plural(count, "event")
    asks = f"Send {events} to {destination} again?"
    which: list[tuple[str, Child]] = [(name, code(str(value))) for name, value in order.items()]
    options = {name.removesuffix("_per_s"): value for name, value in order.items()}
    command = " ".join(f"--{name} {quote(str(value))}" for name, value in options.items())
    says = (
        "Live delivery goes on beside it. Each request says hifi-replay and that it may be known."
    )
    if order.keys() & set(_WHICH):
        says = f"Those of the {events} that are asked for are sent. {says}"
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
