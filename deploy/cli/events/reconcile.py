"""`hifi reconcile`: finds events of a customer's file that Hifi never got, and sends them."""

import json
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.control.dead import time_ms
from deploy.cli.events.event_input import read_lines
from deploy.cli.events.minute_ids import id_pages
from deploy.cli.events.posting import POST_TIMEOUT_S, Poster
from deploy.cli.printing import harmless, out, talk
from shared import wording
from shared.runtime.control_client import ControlClient
from shared.runtime.http_client import HttpClient

# Exit code: some events are missing, and not all of them were sent. With any other code except 0
# nothing was compared.
_MISSING = 3
_BATCH = 500


def reconcile(  # noqa: PLR0917 - typer makes an option of each
    stream: Annotated[str, typer.Option(help="The stream.")],
    events: Annotated[
        Path,
        typer.Option(
            help="File of the events you sent, one per line, with ids; - for standard input."
        ),
    ],
    replay: Annotated[bool, typer.Option("--replay", help="Send the missing ones.")] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="Stored since 2026-11-21T10:00Z, or 2h; default: all."
        ),
    ] = None,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
) -> None:
    """Compare a file of events with those in Hifi, and with --replay send only the missing ones.

    Without --replay it only prints the missing ids. Events keep their ids, so a receiver can
    recognise repeats. Your key must be allowed to read the stream. The comparison covers all its
    stored events, or those since --from. Exit code 0 when nothing is missing (any more), 3 when
    something is. With other codes nothing was compared: 1 when the key is refused, 2 when the
    command is wrong, 6 when there is no such stream, 7 when no gateway answers.

        hifi reconcile --stream orders --events sent.ndjson

        hifi reconcile --stream orders --events sent.ndjson --replay
    """
    given = list(read_lines(events))
    ids = [id_of(event.raw) for event in given]
    named = {name: event for name, event in zip(ids, given, strict=True) if name}
    missing, restored = named.copy(), set[str]()
    since_ms = time_ms("--from", since) or 0
    for page in id_pages(ControlClient(gateway, api_key), stream, since_ms):
        restored.update(named.keys() & page.restored)
        for name in page.ids:
            missing.pop(name, None)
    known = len(named) - len(missing)
    talk.print(
        f"{len(named):,} ids in the file, {known:,} of them in Hifi, {len(missing):,} missing"
    )
    if restored:
        talk.print(f"A restore has put back {len(restored):,} of those in Hifi.")
    if nameless := ids.count(""):
        talk.print(f"{wording.plural(nameless, 'event')} without an id, which cannot be compared.")
    if not replay or not missing:
        for name in missing:
            out.print(harmless(name))
        raise typer.Exit(_MISSING if missing else 0)
    accepted = 0
    with HttpClient(gateway, timeout_s=POST_TIMEOUT_S) as server:
        poster = Poster(server, stream=stream, api_key=api_key)
        for outcome in poster.post_all(iter(missing.values()), batch=_BATCH):
            for complaint in outcome.complaints:
                talk.print(f"  {harmless(complaint)}", style="red")
            accepted += outcome.accepted
    out.print(f"{accepted:,} of {len(missing):,} missing events sent and stored")
    raise typer.Exit(0 if accepted == len(missing) else _MISSING)


def id_of(raw: bytes) -> str:
    """Return an event's own id, as the gateway reads it; empty if it has none."""
    event = json.loads(raw)
    own_id = event.get("id") if isinstance(event, dict) else None
    return str(own_id) if isinstance(own_id, str | int) and not isinstance(own_id, bool) else ""
