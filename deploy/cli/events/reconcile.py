"""`hifi reconcile`: finds what of a customer's file Hifi never took, and sends just that."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.events.event_input import read_lines
from deploy.cli.events.minute_ids import acked_ids
from deploy.cli.events.posting import POST_TIMEOUT_S, Poster
from deploy.cli.printing import harmless, out, talk
from observe.console.parts import wording
from shared.runtime.http_client import HttpClient

# Some are missing, and were not (all) sent; 1 and 2 say that nothing could be compared.
_MISSING = 3
_BATCH = 500


def reconcile(  # noqa: PLR0917 - typer makes an option of each
    stream: Annotated[str, typer.Option(help="The stream.")],
    events: Annotated[
        Path, typer.Option(help="What you have sent: an event with its id on each line; or -.")
    ],
    replay: Annotated[bool, typer.Option("--replay", help="Send what is missing.")] = False,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
) -> None:
    """Compare a file of events with what Hifi has, and with --replay send just the difference.

    Without --replay it only prints the missing ids. Events keep their ids, so whoever receives
    one twice can tell. Exit code 0 when nothing is missing (any more), 3 when
    something is; 1 when it cannot be told, 2 when the command is written wrongly.

        hifi reconcile --stream orders --events sent.ndjson

        hifi reconcile --stream orders --events sent.ndjson --replay
    """
    given = list(read_lines(events))
    ids = [id_of(event.raw) for event in given]
    named = {name: event for name, event in zip(ids, given, strict=True) if name}
    known, restored = asyncio.run(acked_ids(kafka, stream, named))
    missing = {name: event for name, event in named.items() if name not in known}
    talk.print(
        f"{len(named):,} ids in the file, {len(known):,} of them in Hifi, {len(missing):,} missing"
    )
    if restored:
        talk.print(f"A restore has put back {len(restored):,} of those in Hifi.")
    if nameless := ids.count(""):
        talk.print(f"{wording.plural(nameless, 'event')} without an id: nobody can tell of that.")
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
    """An event's own id, as the gateway reads it; empty if it has none."""
    event = json.loads(raw)
    own_id = event.get("id") if isinstance(event, dict) else None
    return str(own_id) if isinstance(own_id, str | int) and not isinstance(own_id, bool) else ""
