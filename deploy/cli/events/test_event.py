"""`hifi test`: sends one event, and follows it to each destination of its stream."""

import json
import time
from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.events.receipt import print_receipt
from deploy.cli.printing import Form, harmless, print_one, talk
from shared.runtime.control_client import ControlClient, RefusedError
from shared.runtime.setup_error import UsageError

# A receipt exists one or two seconds after the answer.
_LOOK_S = 0.5
_UNDER_WAY = frozenset({"queued", "unknown"})
# With this code all commands report that what they checked is not as it should be.
_NOT_SO = 3


@options.made_of(client=options.control_client, form=options.form)
def send_and_follow(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.")],
    event: Annotated[
        str | None, typer.Argument(help='A JSON object; default: {"is_test": true}.')
    ] = None,
    *,
    wait_s: Annotated[
        float, typer.Option("--wait", help="Maximum seconds to follow it.", min=0)
    ] = 30.0,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Send one event, and follow it until each destination has taken or refused it.

    It is an event like any other: all destinations get it. Exit code 3 if one has not taken it.

        hifi test orders

        hifi test orders '{"id":"test-1","total":0}'
    """
    sent = client.call("POST", "streams", stream, "events", body=_event(event))
    request_id = sent["request_id"]
    talk.print(f"It is stored: request {harmless(request_id)}.", style="dim")
    until_s = time.monotonic() + wait_s
    while True:
        receipt = _receipt(client, request_id)
        states = _states(receipt)
        if time.monotonic() >= until_s or (receipt is not None and not _UNDER_WAY & {*states}):
            break
        time.sleep(_LOOK_S)
    if receipt is None:
        raise UsageError(
            f"It has no receipt after {wait_s:g} s: try `hifi receipt {harmless(request_id)}`."
        )
    if form in {None, "table"}:
        print_receipt(receipt)
    else:
        print_one(form, receipt, name=request_id)
    raise typer.Exit(_NOT_SO if set(states) - {"delivered"} else 0)


def _event(text: str | None) -> dict[str, Any]:
    if text is None:
        return {"is_test": True}
    try:
        event = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The event is not JSON: {error}.") from error
    if not isinstance(event, dict):
        raise UsageError("The event is not a JSON object.")
    return event


def _receipt(client: ControlClient, request_id: str) -> dict[str, Any] | None:
    try:
        return client.call("GET", "receipts", request_id)
    except RefusedError as error:
        if error.code not in {"receipt_not_yet", "unknown_receipt"}:
            raise
        return None


def _states(receipt: dict[str, Any] | None) -> list[str]:
    """Return the event's state at each destination."""
    events = receipt["events"] if receipt else []
    return [at["state"] for event in events for at in event["destinations"].values()]
