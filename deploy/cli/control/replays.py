"""`hifi replays`: sends a span of a stream to a destination again, and shows the progress."""

from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.control.dead import time_ms
from deploy.cli.printing import Form, harmless, print_data, print_list, print_one, talk
from shared.event.times import rfc3339
from shared.runtime.control_client import ControlClient

app = typer.Typer(name="replays", no_args_is_help=True)

_LIMIT_DEFAULT = 50
# The gateway returns at most this many at once.
_PAGE = 1_000

Stream = Annotated[str, typer.Argument(help="The stream.")]
ReplayId = Annotated[str, typer.Argument(metavar="ID", help="Id, as `hifi replays list` shows it.")]


@options.control_command(app)
def create(
    stream: Stream,
    *,
    destination: Annotated[str, typer.Option(help="Name of the destination.")],
    since: Annotated[
        str | None,
        typer.Option("--from", help="Stored since 2026-11-21T10:00Z, or 2h for 2 h ago."),
    ] = None,
    to: options.StoredBefore = None,
    key: Annotated[str | None, typer.Option(help="Only events with this ordering key.")] = None,
    event: Annotated[str | None, typer.Option(help="Only events with this id.")] = None,
    rate: options.Rate = None,
    replay_id: options.RunId = None,
    dry_run: options.DryRun = False,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Send a span of a stream to a destination again, beside live delivery.

    It continues after this command ends. Requests have the header `hifi-replay: ID`.

        hifi replays create demo --destination sample --from 2h --dry-run
    """
    times = {"from": time_ms("--from", since), "to": time_ms("--to", to)}
    order: dict[str, Any] = {"destination": destination, "key": key, "event": event}
    order |= {name: None if at is None else rfc3339(at) for name, at in times.items()}
    order |= {"rate_per_s": rate, "id": replay_id, "dry_run": dry_run or None}
    body = {name: value for name, value in order.items() if value is not None}
    done = client.call("POST", "streams", stream, "replays", body=body)
    if dry_run:
        talk.print(f"{done['count']:,} events are in the span")
        if form is not None:
            print_one(form, done, name=str(done["count"]))
    elif form is not None:
        print_one(form, done, name=done["id"])
    else:
        talk.print(_sentence(done), style="green")


@options.control_command(app, "list")
def list_(
    stream: Stream,
    *,
    destination: Annotated[str | None, typer.Option(help="Only replays to this one.")] = None,
    limit: Annotated[int, typer.Option(help="Number of replays to show.", min=1)] = _LIMIT_DEFAULT,
    form: Form | None,
    client: ControlClient,
) -> None:
    """List the replays of a stream, the newest first.

    hifi replays list demo
    """
    asked = {} if destination is None else {"destination": destination}
    replays: list[dict[str, Any]] = []
    before: str | None = ""
    while before is not None and len(replays) < limit:
        query = {**asked, "limit": str(min(limit - len(replays), _PAGE))}
        query |= {"before": before} if before else {}
        page = client.call("GET", "streams", stream, "replays", query=query)
        replays += page["replays"]
        before = page["next"]
    if form in {"json", "yaml"}:
        print_data(form, {"replays": replays, "is_all": before is None})
        return
    heads = ("id", "destination", "from", "to", "state", "read", "of", "sent")
    print_list(form, replays, heads, _row, lambda each: each["id"], numbers=3)
    if before is not None:
        talk.print(f"there are more: --limit {limit * 10} shows them", style="dim")


@options.control_command(app)
def get(stream: Stream, replay_id: ReplayId, form: Form | None, client: ControlClient) -> None:
    """Show the progress of a replay.

    hifi replays get demo spring
    """
    replay = client.call("GET", "streams", stream, "replays", replay_id)
    print_one(form, replay, name=replay["id"])


@options.control_command(app)
def cancel(stream: Stream, replay_id: ReplayId, form: Form | None, client: ControlClient) -> None:
    """Cancel a replay: no more of its events are queued.

    hifi replays cancel demo spring
    """
    replay = client.call("DELETE", "streams", stream, "replays", replay_id)
    if form is not None:
        print_one(form, replay, name=replay["id"])
    else:
        talk.print(_sentence(replay))


def _row(replay: dict[str, Any]) -> tuple[str, ...]:
    state = f"waits: {replay['waits_because']}" if replay["waits_because"] else replay["state"]
    return (
        replay["id"],
        harmless(replay["destination"]),
        replay["from"] or "-",
        replay["to"] or "-",
        state,
        *(f"{replay[name]:,}" for name in ("read", "count", "sent")),
    )


def _sentence(replay: dict[str, Any]) -> str:
    return (
        f"replay {replay['id']} is {replay['state']}: {replay['read']:,} of {replay['count']:,}"
        f" events read, {replay['sent']:,} sent"
    )
