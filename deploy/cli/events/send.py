"""`hifi send`: plays a customer: posts events to the gateway, and says what became of each."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import httpx
import typer

from deploy.cli import options
from deploy.cli.events.event_input import Given, read_arguments, read_lines, synthetic
from deploy.cli.events.posting import Poster, PostOutcome
from deploy.cli.printing import harmless, out, talk
from shared.runtime.setup_error import UsageError

# As many as a destination's request holds by default; 500 of 500 bytes are 0.25 MB.
_BATCH_DEFAULT = 500
# What the gateway takes as one request, unless it is set otherwise.
_BATCH_MAX = 5_000
# Rejections that are told one by one; the count tells of all.
_TOLD_MAX = 10


def send(  # noqa: PLR0917 - typer makes an option of each
    stream: Annotated[str, typer.Argument(help="The stream to send to; `hifi up` makes `demo`.")],
    events: Annotated[list[str] | None, typer.Argument(help="Events, each a JSON object.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="A file with an event on each line; - reads the input."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="Make up so many events.", min=1)
    ] = None,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    batch: Annotated[
        int, typer.Option(help="Events in one request.", min=1, max=_BATCH_MAX)
    ] = _BATCH_DEFAULT,
    key: Annotated[
        str | None, typer.Option(help="Ordering key of the events that name none themselves.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Events per second at most.", min=0.001)
    ] = None,
    api_key: options.ApiKey = None,
) -> None:
    """Send events to a stream, and wait until each is stored.

    Exit code 1 when any was not accepted.

        hifi send demo '{"id":"1","says":"hello"}'

        hifi send demo --file events.ndjson --batch 1000

        hifi send demo --count 10000 --rate 500

        tail -f app.log.json | hifi send demo --file - --batch 1
    """
    given = _given(events or [], file, count)
    with httpx.Client(timeout=httpx.Timeout(60)) as client:
        poster = Poster(client, gateway=gateway, stream=stream, key=key, api_key=api_key)
        total, took_s = _send(poster.post_all(given, batch=batch, rate=rate))
    out.print(
        f"{total.accepted:,} accepted, {total.rejected:,} rejected, {total.unsure:,} not known"
        f" to be stored, in {took_s:.2f} s: {total.accepted / max(took_s, 1e-9):,.0f} events/s"
    )
    raise typer.Exit(0 if total.rejected == total.unsure == 0 else 1)


def _given(events: list[str], file: Path | None, count: int | None) -> Iterator[Given]:
    if sum((bool(events), file is not None, count is not None)) != 1:
        raise typer.BadParameter(
            "give events as arguments, or --file FILE (- is the input), or --count N"
        )
    if file is not None:
        return read_lines(file)
    if count is not None:
        return synthetic(count)
    return read_arguments(events)


def _send(outcomes: Iterator[PostOutcome]) -> tuple[PostOutcome, float]:
    """Tell what becomes of each batch; their sum, and how long they took."""
    total = PostOutcome()
    started_s = time.monotonic()
    try:
        for outcome in outcomes:
            _tell(outcome)
            total = total.plus(outcome)
    except UsageError:
        # A line that is no JSON: what was sent before it is said before the sentence about it.
        if total.count:
            talk.print(f"{total.accepted:,} were accepted before:")
        raise
    return total, time.monotonic() - started_s


def _tell(outcome: PostOutcome) -> None:
    words = [f"{outcome.accepted:,} accepted"]
    if outcome.rejected:
        words.append(f"{outcome.rejected:,} rejected")
    if outcome.unsure:
        words.append(f"{outcome.unsure:,} not known to be stored")
    if outcome.tries > 1:
        words.append(f"{outcome.tries} tries")
    talk.print(f"  {outcome.status}: {', '.join(words)}")
    for complaint in outcome.complaints[:_TOLD_MAX]:
        talk.print(f"    {harmless(complaint)}", style="red")
    if len(outcome.complaints) > _TOLD_MAX:
        talk.print(f"    and {len(outcome.complaints) - _TOLD_MAX} more", style="red")
