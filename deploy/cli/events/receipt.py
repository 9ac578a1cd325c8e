"""`hifi receipt`: what became of a request's events, by the `request_id` of its answer."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.control.control_client import ControlClient
from deploy.cli.printing import harmless, out, print_json, print_table, talk, when

# A screen of events.
_LIMIT_DEFAULT = 50


def receipt(  # noqa: PLR0917 - typer makes an option of each
    request_id: Annotated[str, typer.Argument(help="As the answer to the POST has it.")],
    event: Annotated[str | None, typer.Option(help="Only the event of this id.")] = None,
    after: Annotated[
        str | None, typer.Option(help="From this place on, as the answer before it says.")
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = _LIMIT_DEFAULT,
    since: Annotated[
        str | None,
        typer.Option("--from", help="Search the ledger from this time on, to go on with a search."),
    ] = None,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Show where each event of a request is by now, at each destination.

    hifi receipt 01a1ff25-35c5-7a5b-b0e6-761692f0e9b6
    """
    asked = {"event": event, "after": after, "limit": str(limit), "from": since}
    query = {name: value for name, value in asked.items() if value is not None}
    found = ControlClient(gateway, api_key).call("GET", "receipts", request_id, query=query)
    if as_json:
        print_json(found)
        return
    out.print(f"{found['count']:,} events accepted at {when(found['accepted_at_ms'])}"
              f" in {harmless(found['stream'])}")  # fmt: skip
    for name, counts in found["destinations"].items():
        told = ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)
        out.print(f"{harmless(name)}: {told}")
    heads = ("event", "place", "destination", "state", "since", "reason", "attempts", "")
    print_table(heads, [row for one in found["events"] for row in _rows(one)])
    if found["next"]:
        talk.print(f"there are more: --after {harmless(found['next'])} shows them", style="dim")
    if not found["is_complete"]:
        talk.print("not everything could be read, or is in Kafka yet: ask again", style="yellow")


def _rows(event: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    place = f"{event['partition']}:{event['offset']}"
    for name, told in event["destinations"].items() or [("-", {"state": "no destination"})]:
        yield (
            harmless(event["id"]),
            place,
            harmless(name),
            told["state"],
            when(told["at_ms"]) if "at_ms" in told else "-",
            harmless(told.get("reason", "-")),
            str(told.get("attempts", "-")),
            _more(told),
        )


def _more(told: Mapping[str, Any]) -> str:
    if "place" in told:
        return f"hifi dead show {told['place']}"
    if "due_at_ms" in told:
        return f"in tier {harmless(told['tier'])}, due {when(told['due_at_ms'])}"
    return ""
