"""`hifi events`: shows the events of a stream that a tenant may see, through the gateway."""

import base64
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from deploy.cli import options
from deploy.cli.control.dead import time_ms
from deploy.cli.printing import (
    Form,
    harmless,
    out,
    print_one,
    reader_may_leave,
    talk,
    value_text,
    when,
    yaml_text,
)
from shared.event.times import rfc3339
from shared.runtime.control_client import ControlClient
from shared.runtime.setup_error import NotFoundError

app = typer.Typer(name="events", no_args_is_help=True)

_COUNT_DEFAULT, _PAGE_MAX = 20, 1_000
# The gateway holds a request for new events this long.
_WAIT_S = 20

Stream = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.")]
Key = Annotated[str | None, typer.Option(help="Only events with this ordering key.")]
Contains = Annotated[str | None, typer.Option(help="Only events that contain this text.")]
Since = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="TIME", help="Include events since 2026-11-21T10:00Z, or since 2h ago."
    ),
]


class StreamEvent(msgspec.Struct, omit_defaults=True):
    """An event as the gateway returns it."""

    place: str
    id: str
    key: str | None
    stored_at_ms: int
    accepted_at_ms: int
    event_time_ms: int
    # The restore that put it back, if one has.
    restored_by: str = ""
    data: msgspec.Raw = msgspec.Raw()
    # Set if the event is not JSON.
    data_base64: str = ""
    # Its state at each destination, if requested.
    destinations: dict[str, dict[str, Any]] = {}

    @property
    def value(self) -> bytes:
        """The bytes as they were sent."""
        return base64.b64decode(self.data_base64) or bytes(self.data)

    def line(self) -> str:
        """Return a line for people: time, place, id, key, restore, and the shortened event."""
        time = f"{when(self.stored_at_ms)}.{self.stored_at_ms % 1000:03}"
        key = () if self.key is None else (f"key={harmless(self.key)}",)
        by = (f"restored by {harmless(self.restored_by)}",) if self.restored_by else ()
        states = {name: at["state"] for name, at in self.destinations.items()}
        now = [harmless(f"{name}={at}") for name, at in states.items()]
        parts = (time, self.place, harmless(self.id), *key, *by, *now, value_text(self.value))
        return "  ".join(parts)


class _ListedEvents(msgspec.Struct):
    events: list[StreamEvent]
    newer: str
    older: str | None
    is_complete: bool


@options.control_command(app, "list")
def list_events(
    stream: Stream,
    *,
    limit: Annotated[
        int, typer.Option("--limit", "-n", help="Number of events to show.", min=1, max=_PAGE_MAX)
    ] = _COUNT_DEFAULT,
    key: Key = None,
    contains: Contains = None,
    request: Annotated[
        str | None, typer.Option(metavar="ID", help="Only events of this request.")
    ] = None,
    destination: Annotated[
        str | None, typer.Option(metavar="NAME", help="Show each event's state there.")
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option(help="Only events in this state: delivered, waiting, dead or queued."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only events stored until this time.")
    ] = None,
    before: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Start at this cursor of the last page.")
    ] = None,
    form: Form | None,
    client: ControlClient,
) -> None:
    """List the newest events of a stream, the newest first.

    hifi events list orders

    hifi events list orders --contains '"total":0' --limit 100
    """
    picked = {"request": request, "destination": destination, "outcome": outcome, "until": until}
    page = _page(client, stream, limit=limit, key=key, contains=contains, before=before, **picked)
    with reader_may_leave():
        _print(page.events, form)
    if page.older is None:
        return
    text = "There are older ones" if page.is_complete else "The search has not reached the end"
    talk.print(f"{text}: --before {page.older}", style="dim")


@options.control_command(app, "get", alias="show")
def get(
    stream: Stream,
    event_id: Annotated[str, typer.Argument(metavar="ID")],
    *,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Show the newest event of a stream with an id. The search starts at the stream's end."""
    before: str | None = None
    while True:
        page = _page(client, stream, limit=1, id=event_id, before=before)
        if page.events:
            _print_one(page.events[0], form)
            return
        if page.older is None:
            raise NotFoundError(f"There is no event {harmless(event_id)} in {harmless(stream)}.")
        before = page.older


@options.control_command(app)
def resend(
    stream: Stream,
    event_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="The newest event of this id.")
    ] = None,
    *,
    place: Annotated[
        str | None, typer.Option(help="Its place instead of its id, as `list` shows it: 0:17.")
    ] = None,
    destination: Annotated[
        str | None, typer.Option(help="Name of the only destination to send it to.")
    ] = None,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Send one event again, to each destination where it was delivered or given up.

    It is sent within half a minute, with the same id. Destinations where it is still queued or
    waiting are left out.

    hifi events resend orders order-17 --destination crm
    """
    if event_id is None and place is None:
        raise typer.BadParameter("name the event by its id or --place", param_hint="ID")
    given = {"id": event_id, "place": place, "destination": destination}
    body = {name: value for name, value in given.items() if value is not None}
    done = client.call("POST", "streams", stream, "events:resend", body=body)
    if form not in {None, "table"}:
        print_one(form, done, name=event_id or place or "")
        return
    from shared.retry.resend import LEFT_ALONE  # noqa: PLC0415 - loads all code for retries

    words = {where: f"left alone: {why}" for where, why in LEFT_ALONE.items()}
    words["resent"] = "resent"
    for name, what in done["destinations"].items():
        out.print(f"{harmless(name)}: {words.get(what, what)}")
    if not done["destinations"]:
        out.print(f"{harmless(stream)} has no destination")


@options.control_command(app)
def tail(
    stream: Stream,
    *,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="Stop after this many events.", min=1)
    ] = None,
    since: Since = None,
    key: Key = None,
    contains: Contains = None,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Print the events of a stream as they come, until Ctrl-C.

    hifi events tail orders

    hifi events tail orders --from 2h --json
    """
    with reader_may_leave():
        for event in _counted(
            follow(client, stream, since=since, key=key, contains=contains), count
        ):
            _print(event, form)


def follow(
    client: ControlClient, stream: str, *, since: str | None, **filters: str | None
) -> Iterator[list[StreamEvent]]:
    """Yield new events in batches, endlessly."""
    since_ms = time_ms("--from", since)
    if since_ms is None:
        page = _page(client, stream, limit=1)
        page.events.clear()
        talk.print("waiting for events; Ctrl-C stops", style="dim")
    else:
        page = _page(client, stream, limit=_PAGE_MAX, **{"from": rfc3339(since_ms)}, **filters)
    while True:
        if page.events:
            yield page.events
        after, wait_s = page.newer, None if page.events and not page.is_complete else _WAIT_S
        page = _page(client, stream, limit=_PAGE_MAX, after=after, wait_s=wait_s, **filters)


def _counted(pages: Iterator[list[StreamEvent]], count: int | None) -> Iterator[list[StreamEvent]]:
    left = count
    while left != 0:
        events = next(pages)[:left]
        left = None if left is None else left - len(events)
        yield events


def _page(client: ControlClient, stream: str, **query: Any) -> _ListedEvents:
    given = {name: str(value) for name, value in query.items() if value is not None}
    response = client.send("GET", "streams", stream, "events", query=given)
    return msgspec.json.decode(response.content, type=_ListedEvents)


def _print(events: list[StreamEvent], form: Form | None) -> None:
    """Print one event a line, also as JSON: an endless list cannot be one JSON document."""
    for event in events:
        match form:
            case "json":
                text = msgspec.json.encode(event).decode()
            case "yaml":
                sys.stdout.write(
                    "---\n" + yaml_text(msgspec.json.decode(msgspec.json.encode(event)))
                )
                continue
            case "name":
                text = harmless(event.id)
            case _:
                text = event.line()
        sys.stdout.write(text.replace("\n", " ") + "\n")
    sys.stdout.flush()


def _print_one(event: StreamEvent, form: Form | None) -> None:
    if form in {None, "json"}:
        # Its numbers stay as they were sent, at any length.
        out.out(msgspec.json.format(msgspec.json.encode(event), indent=2).decode())
    else:
        _print([event], form)
