"""`hifi receipt`: shows what became of a request's events; takes the answer's `request_id`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.printing import Form, harmless, out, print_one, print_table, talk, when
from shared import wording
from shared.runtime.control_client import ControlClient

# As many events as fit on a screen.
_LIMIT_DEFAULT = 50


@options.made_of(client=options.control_client, form=options.form)
def receipt(
    *,
    request_id: Annotated[str, typer.Argument(help="Request id, from the answer to the POST.")],
    event: Annotated[str | None, typer.Option(help="Only the event with this id.")] = None,
    after: Annotated[
        str | None, typer.Option(help="Start after this place, which the previous answer names.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Number of events to show.", min=1)] = _LIMIT_DEFAULT,
    since: Annotated[
        str | None,
        typer.Option("--from", help="Search the ledger from this time on, to continue a search."),
    ] = None,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Show where each event of a request is now, at each destination.

    hifi receipt 01a1ff25-35c5-7a5b-b0e6-761692f0e9b6
    """
    asked = {"event": event, "after": after, "limit": str(limit), "from": since}
    query = {name: value for name, value in asked.items() if value is not None}
    answer = client.call("GET", "receipts", request_id, query=query)
    if form not in {None, "table"}:
        print_one(form, answer, name=request_id)
        return
    print_receipt(answer)


def print_receipt(answer: Mapping[str, Any]) -> None:
    """Print a receipt for people."""
    events = wording.plural(answer["count"], "event")
    out.print(f"{events} accepted at {when(answer['accepted_at_ms'])}"
              f" in {harmless(answer['stream'])}")  # fmt: skip
    for name, counts in answer["destinations"].items():
        out.print(f"{harmless(name)}: {_counted(counts)}")
    heads = ("event", "place", "destination", "state", "since", "reason", "attempts", "")
    print_table(heads, [row for each in answer["events"] for row in _rows(each)])
    # An older gateway does not report failed attempts.
    _print_tries(answer.get("failed_tries", ()), answer.get("failed_try_count", 0))
    for hop in answer.get("derived", ()):
        _print_hop(hop)
    for restore in answer.get("restored", ()):
        _print_restore(restore)
    if answer["next"]:
        talk.print(f"there are more: --after {harmless(answer['next'])} shows them", style="dim")
    if not answer["is_complete"]:
        talk.print("some of it was unreadable, or is not in Kafka yet: ask again", style="yellow")


def _counted(counts: Mapping[str, int]) -> str:
    """Return the counts by state, as one text."""
    return ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)


def _print_hop(hop: Mapping[str, Any]) -> None:
    """Print the events that a pipeline made from these, and where those are now."""
    made = wording.plural(hop["count"], "event")
    pipeline, reads, stream = (harmless(hop[name]) for name in ("pipeline", "reads", "stream"))
    out.print(f"\nthe pipeline {pipeline} read {reads} and wrote {made} to {stream}")
    for name, counts in hop["destinations"].items():
        out.print(f"{harmless(name)}: {_counted(counts)}")
    heads = ("event", "from", "place", "destination", "state", "since", "reason", "attempts", "")
    rows = [(row[0], each["of"], *row[1:]) for each in hop["events"] for row in _rows(each)]
    print_table(heads, rows)


def _print_restore(restore: Mapping[str, Any]) -> None:
    """Print a restore that put some of these events back, with its times and its stream."""
    began, last = when(restore["began_at_ms"]), when(restore["last_at_ms"])
    ids = ", ".join(map(harmless, restore["events"]))
    out.print(
        f"\nthe restore {harmless(restore['restore'])} put"
        f" {wording.plural(len(restore['events']), 'event')} of these into"
        f" {harmless(restore['stream'])} again, between {began} and {last}: {ids}"
    )


def _print_tries(tries: Sequence[Mapping[str, Any]], count: int) -> None:
    """Print the result of each failed request, in the order of time."""
    if not tries:
        return
    shown = "" if count == len(tries) else f", of which the newest {len(tries):,} are shown"
    out.print(f"\n{wording.plural(count, 'request')} not taken{shown}:")
    heads = ("ended", "took", "destination", "attempt", "reason", "answer", "batch", "with")
    print_table(heads, [_try_row(each) for each in tries])


def _try_row(each: Mapping[str, Any]) -> tuple[str, ...]:
    together = wording.plural(each["batch_events"], "event")
    if each["events"]:
        ids = ", ".join(map(harmless, each["events"]))
        together += f": {ids}" + ("" if len(each["events"]) == each["batch_events"] else ", ...")
    return (
        when(each["at_ms"]),
        wording.duration(each["took_ms"] / 1000),
        harmless(each["destination"]),
        str(each["attempt"]),
        harmless(each["reason"]),
        harmless(each["text"]) or "-",
        harmless(each["batch_id"]),
        together,
    )


def _rows(event: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    place = f"{event['partition']}:{event['offset']}"
    for name, outcome in event["destinations"].items() or [("-", {"state": "no destination"})]:
        yield (
            harmless(event["id"]),
            place,
            harmless(name),
            outcome["state"],
            when(outcome["at_ms"]) if "at_ms" in outcome else "-",
            harmless(outcome.get("reason", "-")),
            str(outcome.get("attempts", "-")),
            _more(outcome),
        )


def _more(outcome: Mapping[str, Any]) -> str:
    if "place" in outcome:
        return f"hifi dead get {outcome['place']}"
    if "due_at_ms" in outcome:
        return f"in tier {harmless(outcome['tier'])}, due {when(outcome['due_at_ms'])}"
    return ""
