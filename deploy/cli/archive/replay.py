"""`hifi replay`: sends events that only an archive still has to a destination again."""

import re
from dataclasses import replace
from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.archive.places import ArchiveChoice, archive_choice
from deploy.cli.control.dead import time_ms
from shared.runtime.clock import now_ms

_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_RATE_DEFAULT = 100.0


@options.made_of(place=archive_choice)
def replay_(
    *,
    stream: Annotated[str, typer.Option(help="The stream.")],
    destination: Annotated[str, typer.Option(help="Name of the destination.")],
    since: Annotated[
        str, typer.Option("--from", help="Stored since 2026-11-21T10:00Z, or 2h for 2 h ago.")
    ],
    to: options.StoredBefore = None,
    rate: Annotated[
        float, typer.Option(help="Maximum events per second.", min=0.001)
    ] = _RATE_DEFAULT,
    replay_id: options.RunId = None,
    dry_run: options.DryRun = False,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    place: ArchiveChoice,
) -> None:
    """Resend events to a destination from the archive, after Kafka has deleted them.

    `hifi replays create` sends events that Kafka still has; `hifi replays` lists both.
    Requests have the header `hifi-replay: ID`. Ctrl-C stops it; the same command with the same
    --id resumes it.

    hifi replay --stream demo --destination sample --from 2026-11-21T10:00Z --dry-run
    """
    name = replay_id or f"at-{now_ms()}"
    if not _ID.fullmatch(name):
        raise typer.BadParameter(f"{name!r} is not a valid name", param_hint="--id")
    # This import takes half a second, which no other command should spend.
    from deploy.cli.archive.replaying import ArchiveReplay, carry_out  # noqa: PLC0415

    carry_out(
        ArchiveReplay(
            kafka=kafka,
            place=replace(place, data=place.data.absolute()),
            replay_id=name,
            stream=stream,
            destination=destination,
            from_ms=time_ms("--from", since) or 0,
            to_ms=time_ms("--to", to),
            rate_per_s=rate,
            is_dry=dry_run,
        )
    )
