"""`hifi dead`: lists, shows, exports and redrives dead letters."""

import re
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.printing import (
    Form,
    harmless,
    print_data,
    print_list,
    print_one,
    reader_may_leave,
    talk,
    when,
)
from shared.event.times import rfc3339
from shared.runtime.clock import now_ms
from shared.runtime.control_client import ControlClient
from shared.runtime.http_client import HttpAnswer
from shared.runtime.setup_error import NotFoundError, UsageError

app = typer.Typer(name="dead", no_args_is_help=True)

_AGO = re.compile(r"([0-9]{1,6})([smhd])")
# One screen of dead letters; --limit shows more.
_LIMIT_DEFAULT = 50
# The gateway returns at most this many at once.
_PAGE = 1_000
_JSON, _NDJSON = "application/json", "application/x-ndjson"

Stream = Annotated[str | None, typer.Option(help="Stream.")]
Limit = Annotated[int | None, typer.Option(help="Maximum number of dead letters.", min=1)]


def _filters(  # noqa: PLR0917 - typer gives each by its name
    destination: Annotated[str | None, typer.Option(help="Destination.")] = None,
    reason: Annotated[
        str | None, typer.Option(help="Reason; status_4* matches all with that beginning.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--from", help="Dead since 2026-11-21T10:00Z, or 2h for 2 h ago."),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help="Dead before this time.")] = None,
    event_id: Annotated[str | None, typer.Option("--id", help="Event id.")] = None,
    answer: Annotated[
        str | None, typer.Option(help="The destination's answer, as the console groups answers.")
    ] = None,
) -> dict[str, str]:
    """Return the options as query parameters of the gateway."""
    times = {"from": time_ms("--from", since), "to": time_ms("--to", to)}
    written = {name: rfc3339(at_ms) for name, at_ms in times.items() if at_ms is not None}
    return _given(destination=destination, reason=reason, id=event_id, answer=answer) | written


@options.control_command(app, "list", filters=_filters)
def list_(
    *,
    stream: Stream = None,
    limit: Annotated[
        int, typer.Option(help="Number of dead letters to show.", min=1)
    ] = _LIMIT_DEFAULT,
    form: Form | None,
    filters: dict[str, str],
    client: ControlClient,
) -> None:
    """List dead letters, the oldest of each Kafka partition first.

    hifi dead list --stream demo --reason status_4* --from 2h
    """
    pages = _pages(client, filters | _given(stream=stream), limit + 1)
    letters = [letter for page in pages for letter in page.json()["dead_letters"]]
    is_all = len(letters) <= limit
    if form in {"json", "yaml"}:
        print_data(form, {"dead_letters": letters[:limit], "is_all": is_all})
        return
    heads = ("place", "died", "destination", "id", "reason", "attempts", "last status", "")
    print_list(form, letters[:limit], heads, _row, lambda letter: letter["place"])
    if not is_all:
        talk.print(f"there are more: --limit {limit * 10} shows them", style="dim")


@options.control_command(app, "get", alias="show")
def show(
    place: Annotated[str, typer.Argument(help="Its place, as `hifi dead list` shows it: 0:17.")],
    form: Form | None,
    client: ControlClient,
) -> None:
    """Show the whole history of one dead letter, and the event itself.

    hifi dead get 0:17
    """
    query = {"after": place, "limit": "1", "payload": "true"}
    for letter in client.call("GET", "dead-letters", query=query)["dead_letters"]:
        if letter["place"] == place:
            print_one(form, letter, name=place)
            return
    raise NotFoundError(f"There is no dead letter at {place}: `hifi dead list` shows them.")


@options.control_command(app, filters=_filters)
def export(
    *, stream: Stream = None, limit: Limit = None, filters: dict[str, str], client: ControlClient
) -> None:
    """Write dead letters as NDJSON, with Event Grid's names, to standard output.

    hifi dead export --stream demo > dead.ndjson
    """
    count = 0
    with reader_may_leave():
        for page in _pages(client, filters | _given(stream=stream), limit, accept=_NDJSON):
            sys.stdout.buffer.write(page.content)
            count += page.content.count(b"\n")
        sys.stdout.buffer.flush()
    talk.print(f"{count:,} dead letters", style="dim")


@options.control_command(app, filters=_filters)
def redrive(
    *,
    stream: Annotated[str, typer.Option(help="Stream.")],
    limit: Limit = None,
    rate: Annotated[
        float | None, typer.Option(help="Events per second; 100 if not given.", min=0.01)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    form: Form | None,
    filters: dict[str, str],
    client: ControlClient,
) -> None:
    """Send dead letters again: they go to the first retry tier, and get all attempts again.

    Each is sent again only once, even if you repeat the command. You may stop it at any time.

        hifi dead redrive --stream demo --destination sample --reason status_401 --dry-run
    """
    path = "streams", stream, "dead-letters:redrive"
    numbers = {"limit": limit, "rate_per_s": rate}
    order = filters | {name: value for name, value in numbers.items() if value is not None}
    done = client.call("POST", *path, body={**order, "dry_run": True})
    talk.print(_count_text(done))
    if not dry_run and done["count"]:
        if not yes and not typer.confirm(f"Send {done['count']:,} again?", err=True):
            raise typer.Exit(1)
        done |= _send_again(client, path, order)
    if form is not None:
        counts = {name: done[name] for name in ("redrive_id", "count", "already", "malformed")}
        print_one(form, counts, name=done["redrive_id"] or "")
    elif done["redrive_id"] is not None:
        sent = f"{done['count']:,} sent again as redrive {done['redrive_id']}"
        talk.print(sent, style="green")


def _send_again(
    client: ControlClient, path: tuple[str, ...], order: dict[str, Any]
) -> dict[str, Any]:
    """Repeat the request until everything is sent: the gateway works a few seconds at a time."""
    sent, limit = 0, order.get("limit")
    while True:
        done = client.call("POST", *path, body=order)
        sent += done["count"]
        talk.print(f"{sent:,} sent again", style="dim")
        if done["is_complete"] or sent == limit:
            return {"redrive_id": done["redrive_id"], "count": sent}
        if not done["count"]:
            raise UsageError(
                "There are too many dead letters to search at once:"
                " narrow them down with --from and --to."
            )
        order = {**order, "redrive_id": done["redrive_id"]}
        if limit is not None:
            order["limit"] = limit - sent


def _pages(
    client: ControlClient, query: dict[str, str], limit: int | None, *, accept: str = _JSON
) -> Iterator[HttpAnswer]:
    """Yield the pages of a list of at most `limit` dead letters."""
    left, after = limit, ""
    while left != 0:
        asked = query | {"limit": str(min(left or _PAGE, _PAGE))} | _given(after=after)
        page = client.send("GET", "dead-letters", query=asked, accept=accept)
        yield page
        after = page.headers.get("hifi-next", "")
        if not after:
            return
        if left is not None:
            left -= int(page.headers["hifi-count"])


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def time_ms(option: str, text: str | None) -> int | None:
    """Parse `2h` (ago), or a date and time, by default in this machine's time zone."""
    if text is None:
        return None
    ago = _AGO.fullmatch(text)
    if ago is not None:
        # No event is older than the epoch, and a calendar cannot show all earlier times.
        return max(0, now_ms() - int(ago[1]) * options.SPAN_UNITS_S[ago[2]] * 1000)
    try:
        return max(0, round(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(
            f"{option}: {text!r} is neither like 2026-11-21T10:00Z nor like 2h"
        ) from error


def _row(letter: dict[str, Any]) -> tuple[str, ...]:
    status = letter.get("last_status")
    return (
        letter["place"],
        when(letter["dead_at_ms"]),
        harmless(letter["destination"]) or "-",
        harmless(letter["id"]) or "-",
        harmless(letter["reason"]),
        str(letter.get("attempts", "-")),
        "-" if status is None else str(status),
        "sent again" if letter["redriven"] else "",
    )


def _count_text(counted: dict[str, Any]) -> str:
    at_least = "" if counted["is_complete"] else "at least "
    parts = [f"{at_least}{counted['count']:,} to send again"]
    if counted["already"]:
        parts.append(f"{counted['already']:,} were sent again earlier")
    if counted["malformed"]:
        parts.append(f"{counted['malformed']:,} cannot be read, and stay dead letters")
    return ", ".join(parts)
