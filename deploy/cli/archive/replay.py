"""`hifi replay`: sends a span of a stream to a destination once more, beside its live lane."""

import re
from dataclasses import replace
from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.archive.places import ArchiveChoice, archive_choice
from deploy.cli.control.dead import time_ms
from shared.runtime.clock import now_ms

_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@options.made_of(place=archive_choice)
def replay_(
    *,
    stream: Annotated[str, typer.Option(help="The stream.")],
    destination: Annotated[str, typer.Option(help="Its destination: the name.")],
    since: Annotated[
        str | None,
        typer.Option("--from", help="Stored since: 2026-11-21T10:00Z, or 2h for 2 h ago."),
    ] = None,
    event: Annotated[
        str | None, typer.Option(help="Only the newest event of this id, instead of a span.")
    ] = None,
    to: options.StoredBefore = None,
    key: Annotated[str | None, typer.Option(help="Only events with this ordering key.")] = None,
    rate: options.Rate = None,
    replay_id: options.RunId = None,
    dry_run: options.DryRun = False,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    allow_private: Annotated[
        bool,
        typer.Option(
            envvar="HIFI_DELIVERY_ALLOW_PRIVATE", help="Send to private addresses as well."
        ),
    ] = False,
    place: ArchiveChoice,
) -> None:
    """Send a span of a stream to a destination again, in a Spark process of its own.

    What Kafka has no more comes out of the stream's archive.

    Live delivery goes on beside it. Requests say `hifi-replay: ID`. Ctrl-C ends it after the slice
    under way; the same command with the same --id goes on there.

    hifi replay --stream demo --destination sample --from 2h --dry-run
    hifi replay --stream demo --destination sample --event e-17
    """
    if (since is None) == (event is None):
        raise typer.BadParameter("say either --from or --event", param_hint="--from")
    if event is not None and (to is not None or key is not None):
        raise typer.BadParameter("one event has no --to and no --key", param_hint="--event")
    name = replay_id or f"at-{now_ms()}"
    if not _ID.fullmatch(name):
        raise typer.BadParameter(f"{name!r} is no name", param_hint="--id")
    # Half a second that no other command should take.
    from deploy.cli.archive.replaying import ReplayCommand, carry_out  # noqa: PLC0415

    carry_out(
        ReplayCommand(
            kafka=kafka,
            place=replace(place, data=place.data.absolute()),
            replay_id=name,
            stream=stream,
            destination=destination,
            event=event,
            from_ms=time_ms("--from", since),
            to_ms=time_ms("--to", to),
            key=key,
            rate_per_s=rate,
            is_dry=dry_run,
            allow_private=allow_private,
        )
    )
