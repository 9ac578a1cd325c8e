"""`hifi dead`: lists, shows, exports and sends again what rests in dead letters."""

import asyncio
import re
import sys
import time
import uuid
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.printing import harmless, print_json, print_table, reader_may_leave, talk, when
from shared.retry.dead_letter import (
    DeadLetterFilter,
    Letter,
    Place,
    export_line,
    payload_of,
    story_of,
)
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.dead_letters import (
    DeadLetters,
    Redriven,
    count_redrive,
    open_dead_letters,
    redrive,
)
from shared.runtime.setup_error import UsageError

app = typer.Typer(no_args_is_help=True, help="Dead letters: list, show, export, redrive.")

_AGO = re.compile(r"([0-9]{1,6})([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
# A screen of them; whoever wants more says so.
_LIMIT_DEFAULT = 50

Stream = Annotated[str | None, typer.Option(help="Of this stream only.")]
Destination = Annotated[str | None, typer.Option(help="Of this destination: its name.")]
Reason = Annotated[str | None, typer.Option(help="For this reason; status_4* for all such.")]
From = Annotated[
    str | None, typer.Option("--from", help="Dead since: 2026-11-21T10:00Z, or 2h for 2 h ago.")
]
To = Annotated[str | None, typer.Option("--to", help="Dead before: as --from.")]
EventId = Annotated[str | None, typer.Option("--id", help="The event of this id.")]


@app.command("list")
def list_(  # noqa: PLR0917 - typer makes an option of each
    stream: Stream = None,
    destination: Destination = None,
    reason: Reason = None,
    since: From = None,
    to: To = None,
    event_id: EventId = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = _LIMIT_DEFAULT,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """List dead letters, the oldest of each Kafka partition first.

    hifi dead list --stream demo --reason status_4* --from 2h
    """
    wanted = wanted_of(stream, destination, reason, since, to, event_id)
    letters, marked, is_all = asyncio.run(_listed(kafka, wanted, limit))
    if as_json:
        stories = [{**story_of(one), "redriven": one.place in marked} for one in letters]
        print_json({"dead_letters": stories, "is_all": is_all})
        return
    print_table(
        ("place", "died", "destination", "id", "reason", "attempts", "last status", ""),
        [_row(one, is_redriven=one.place in marked) for one in letters],
    )
    if not is_all:
        talk.print(f"there are more: --limit {limit * 10} shows them", style="dim")


@app.command()
def show(
    place: Annotated[str, typer.Argument(help="Where it lies, as `hifi dead list` says: 0:17.")],
    kafka: options.Kafka = options.KAFKA_DEFAULT,
) -> None:
    """Show the whole story of one dead letter, and the event itself.

    hifi dead show 0:17
    """
    try:
        where = Place.of(place)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    letter, is_redriven = asyncio.run(_shown(kafka, where))
    print_json({**story_of(letter), "redriven": is_redriven, **payload_of(letter)})


@app.command()
def export(  # noqa: PLR0917 - typer makes an option of each
    stream: Stream = None,
    destination: Destination = None,
    reason: Reason = None,
    since: From = None,
    to: To = None,
    event_id: EventId = None,
    limit: Annotated[int | None, typer.Option(help="At most so many.", min=1)] = None,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
) -> None:
    """Write dead letters as NDJSON, with Event Grid's names, to standard output.

    hifi dead export --stream demo > dead.ndjson
    """
    wanted = wanted_of(stream, destination, reason, since, to, event_id)
    with reader_may_leave():
        count = asyncio.run(_exported(kafka, wanted, limit))
    talk.print(f"{count:,} dead letters", style="dim")


@app.command("redrive")
def redrive_(  # noqa: PLR0917 - typer makes an option of each
    stream: Annotated[str, typer.Option(help="Of this stream.")],
    destination: Destination = None,
    reason: Reason = None,
    since: From = None,
    to: To = None,
    event_id: EventId = None,
    limit: Annotated[int | None, typer.Option(help="At most so many.", min=1)] = None,
    rate: Annotated[float, typer.Option(help="Events per second.", min=0.01)] = 100.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Send dead letters again: to the first retry tier, with all attempts before them.

    Each is sent again once, however often this is called; it may be stopped at any moment.

        hifi dead redrive --stream demo --destination sample --reason status_401 --dry-run
    """
    wanted = wanted_of(stream, destination, reason, since, to, event_id)
    found = asyncio.run(count_redrive(kafka, wanted, count_max=limit))
    talk.print(_count_text(found))
    if dry_run or not found.count:
        _told(found, redrive_id=None, as_json=as_json)
        return
    if not yes and not typer.confirm(f"Send {found.count:,} again?", err=True):
        raise typer.Exit(1)
    redrive_id = uuid.uuid4().hex
    done = asyncio.run(
        redrive(
            kafka,
            wanted,
            redrive_id=redrive_id,
            schedule=RetrySchedule(),
            rate_per_s=rate,
            count_max=limit,
            on_progress=lambda so_far: talk.print(f"{so_far.count:,} sent again", style="dim"),
        )
    )
    _told(done, redrive_id=redrive_id, as_json=as_json)


def wanted_of(  # noqa: PLR0917 - as the options come
    stream: str | None,
    destination: str | None,
    reason: str | None,
    since: str | None,
    to: str | None,
    event_id: str | None,
) -> DeadLetterFilter:
    """What the options ask for."""
    now_ms = time.time_ns() // 1_000_000
    return DeadLetterFilter(
        stream=stream,
        destination=destination,
        reason=reason,
        from_ms=time_ms("--from", since, now_ms=now_ms),
        to_ms=time_ms("--to", to, now_ms=now_ms),
        event_id=event_id,
    )


def time_ms(option: str, text: str | None, *, now_ms: int) -> int | None:
    """`2h` ago, or a date and time; one without a zone is of this machine's."""
    if text is None:
        return None
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now_ms - int(ago[1]) * _UNIT_S[ago[2]] * 1000
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(
            f"{option}: {text!r} is neither like 2026-11-21T10:00Z nor like 2h"
        ) from error


async def _taken(
    letters: DeadLetters, wanted: DeadLetterFilter, limit: int | None
) -> AsyncIterator[Letter]:
    """The first so many."""
    left = limit
    async for page in letters.pages(wanted):
        for letter in page.letters:
            if left == 0:
                return
            yield letter
            left = None if left is None else left - 1


async def _listed(
    kafka: str, wanted: DeadLetterFilter, limit: int
) -> tuple[list[Letter], set[Place], bool]:
    async with open_dead_letters(kafka) as letters:
        found = [one async for one in _taken(letters, wanted, limit + 1)]
        return found[:limit], await letters.redriven(), len(found) <= limit


async def _shown(kafka: str, place: Place) -> tuple[Letter, bool]:
    async with open_dead_letters(kafka) as letters:
        letter = await letters.at(place)
        if letter is None:
            raise UsageError(f"There is no dead letter at {place}: `hifi dead list` shows them.")
        return letter, place in await letters.redriven()


async def _exported(kafka: str, wanted: DeadLetterFilter, limit: int | None) -> int:
    count = 0
    async with open_dead_letters(kafka) as letters:
        async for letter in _taken(letters, wanted, limit):
            sys.stdout.buffer.write(export_line(letter))
            count += 1
    sys.stdout.buffer.flush()
    return count


def _row(letter: Letter, *, is_redriven: bool) -> tuple[str, ...]:
    story = story_of(letter)
    status = story.get("last_status")
    return (
        str(letter.place),
        when(letter.dead_at_ms),
        harmless(letter.destination_id) or "-",
        harmless(letter.event_id) or "-",
        harmless(letter.reason),
        str(story.get("attempts", "-")),
        "-" if status is None else str(status),
        "sent again" if is_redriven else "",
    )


def _count_text(found: Redriven) -> str:
    parts = [f"{found.count:,} to send again"]
    if found.already:
        parts.append(f"{found.already:,} were sent again earlier")
    if found.malformed:
        parts.append(f"{found.malformed:,} cannot be opened and stay")
    return ", ".join(parts)


def _told(found: Redriven, *, redrive_id: str | None, as_json: bool) -> None:
    """What came of it, for programs or for people."""
    if as_json:
        print_json(
            {
                "redrive_id": redrive_id,
                "count": found.count,
                "already": found.already,
                "malformed": found.malformed,
            }
        )
    elif redrive_id is not None:
        talk.print(f"{found.count:,} sent again as re-drive {redrive_id}", style="green")
