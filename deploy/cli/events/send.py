"""`hifi send`: posts events to the gateway as a customer would, and prints the outcomes."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.events.event_input import EventInput, read_arguments, read_lines, synthetic
from deploy.cli.events.posting import POST_TIMEOUT_S, Poster, PostOutcome
from deploy.cli.printing import Form, harmless, out, print_one, talk
from shared.runtime.http_client import HttpClient
from shared.runtime.setup_error import PARTLY_DONE, NotFoundError, UsageError

# The default size of a destination's request; 500 events of 500 bytes are 0.25 MB.
_BATCH_DEFAULT = 500
# The gateway's default limit for one request.
_BATCH_MAX = 5_000
# At most this many rejections are shown one by one; the count includes all.
_TOLD_MAX = 10


@options.made_of(form=options.form)
def send(  # noqa: PLR0917 - typer makes an option of each
    stream: Annotated[str, typer.Argument(help="The stream to send to; `hifi up` makes `demo`.")],
    events: Annotated[list[str] | None, typer.Argument(help="Events, each a JSON object.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="A file with an event per line; - for standard input."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="Generate this many events.", min=1)
    ] = None,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    batch: Annotated[
        int, typer.Option(help="Events in one request.", min=1, max=_BATCH_MAX)
    ] = _BATCH_DEFAULT,
    key: Annotated[
        str | None, typer.Option(help="Ordering key for events that have none themselves.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Maximum events per second.", min=0.001)
    ] = None,
    api_key: options.ApiKey = None,
    *,
    form: Form | None,
) -> None:
    """Send events to a stream, and wait until each is stored.

    Exit code 5 when some were not accepted, 1 when none was, 6 when there is no such stream.

        hifi send demo '{"id":"1","says":"hello"}'

        hifi send demo --file events.ndjson --batch 1000

        hifi send demo --count 10000 --rate 500

        tail -f app.log.json | hifi send demo --file - --batch 1
    """
    given = _given(events or [], file, count)
    known = count if count is not None else len(events or []) or None
    with HttpClient(gateway, timeout_s=POST_TIMEOUT_S) as server:
        poster = Poster(server, stream=stream, key=key, api_key=api_key)
        total, took_s = _send(poster.post_all(given, batch=batch, rate=rate), known)
    _print(form, total, took_s)
    raise typer.Exit(_exit_code(total))


def _print(form: Form | None, total: PostOutcome, took_s: float) -> None:
    """Print the total as a sentence or in `form`; `name` prints the ids for `hifi receipt`."""
    if form is None:
        out.print(
            f"{total.accepted:,} accepted, {total.rejected:,} rejected, {total.unsure:,} not known"
            f" to be stored, in {took_s:.2f} s: {total.accepted / max(took_s, 1e-9):,.0f} events/s"
        )
        if total.accepted or total.unsure:
            _tell_ids(total.request_ids)
        return
    summary = {
        "accepted": total.accepted,
        "rejected": total.rejected,
        "unsure": total.unsure,
        "seconds": round(took_s, 3),
        "request_ids": total.request_ids,
    }
    if form == "name":
        for request_id in total.request_ids:
            out.print(harmless(request_id))
    else:
        print_one(form, summary, name="")


def _exit_code(total: PostOutcome) -> int:
    if total.rejected == total.unsure == 0:
        return 0
    if total.accepted:
        return PARTLY_DONE
    return NotFoundError.exit_code if total.status == str(HTTPStatus.NOT_FOUND.value) else 1


def _tell_ids(request_ids: tuple[str, ...]) -> None:
    if not request_ids:
        return
    first = harmless(request_ids[0])
    if len(request_ids) == 1:
        talk.print(f"`hifi receipt {first}` shows where they are.")
    else:
        talk.print(
            f"They went in {len(request_ids):,} requests, {first} to {harmless(request_ids[-1])}:"
            " `hifi receipt ID` shows where the events of one are."
        )


def _given(events: list[str], file: Path | None, count: int | None) -> Iterator[EventInput]:
    if sum((bool(events), file is not None, count is not None)) != 1:
        raise typer.BadParameter(
            "give events as arguments, or --file FILE (- for standard input), or --count N"
        )
    if file is not None:
        return read_lines(file)
    if count is not None:
        return synthetic(count)
    return read_arguments(events)


def _send(outcomes: Iterator[PostOutcome], known: int | None) -> tuple[PostOutcome, float]:
    """Print batches that needed retries or were not accepted; return the total and the time."""
    total = PostOutcome()
    started_s = time.monotonic()
    try:
        with _progress(known) as sent:
            for outcome in outcomes:
                _tell(outcome)
                total = replace(total.plus(outcome), status=outcome.status)
                sent(outcome.count)
    except UsageError:
        # A line is not JSON: print what was sent before it; the error names the line.
        if total.count:
            talk.print(f"{total.accepted:,} events were accepted before this error:")
        raise
    return total, time.monotonic() - started_s


@contextmanager
def _progress(known: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar in a terminal; elsewhere nothing, as ten thousand lines help nobody."""
    if not talk.is_terminal:
        yield lambda _: None
        return
    from rich import progress  # noqa: PLC0415 - a fifth of the time to start

    columns = progress.BarColumn(), progress.MofNCompleteColumn(), progress.TimeElapsedColumn()
    with progress.Progress(*columns, console=talk.console, transient=True) as bar:
        task = bar.add_task("sent", total=known)
        yield lambda count: bar.advance(task, count)


def _tell(outcome: PostOutcome) -> None:
    if outcome.accepted == outcome.count and outcome.tries == 1:
        return
    words = [f"{outcome.accepted:,} accepted"]
    if outcome.rejected:
        words.append(f"{outcome.rejected:,} rejected")
    if outcome.unsure:
        words.append(f"{outcome.unsure:,} not known to be stored")
    if outcome.tries > 1:
        words.append(f"{outcome.tries} tries")
    request = f" (request {harmless(outcome.request_ids[-1])})" if outcome.request_ids else ""
    talk.print(f"  {outcome.status}: {', '.join(words)}{request}")
    for complaint in outcome.complaints[:_TOLD_MAX]:
        talk.print(f"    {harmless(complaint)}", style="red")
    if len(outcome.complaints) > _TOLD_MAX:
        talk.print(f"    and {len(outcome.complaints) - _TOLD_MAX} more", style="red")
