"""`hifi listen`: forwards the events of a stream to a developer's machine, as they come."""

import hashlib
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.events.stream_events import Contains, Key, Since, Stream, StreamEvent, follow
from deploy.cli.printing import harmless, talk
from shared.runtime.control_client import ControlClient
from shared.runtime.http_client import HttpClient, NoHttpAnswerError

_BATCH_DEFAULT, _BATCH_MAX = 100, 1_000
_TIMEOUT_S = 30.0
# Wait between attempts, until the developer has restarted the receiver.
_AGAIN_S = 1.0


@options.made_of(client=options.control_client)
def listen(
    stream: Stream,
    *,
    forward_to: Annotated[
        str, typer.Option("--forward-to", metavar="URL", help="The address to POST events to.")
    ],
    batch: Annotated[
        int, typer.Option(help="Maximum events in one request.", min=1, max=_BATCH_MAX)
    ] = _BATCH_DEFAULT,
    since: Since = None,
    key: Key = None,
    contains: Contains = None,
    client: ControlClient,
) -> None:
    """Send the events of a stream to a receiver that you are developing, until Ctrl-C.

    Requests look like those to a destination, but are unsigned. No outcomes are stored, and refused
    events are printed and not sent again. Events wait while the receiver is down.

        hifi listen orders --forward-to http://127.0.0.1:3000/hooks
    """
    with HttpClient(forward_to, timeout_s=_TIMEOUT_S) as receiver:
        for events in follow(client, stream, since=since, key=key, contains=contains):
            for first in range(0, len(events), batch):
                _forward(receiver, stream, events[first : first + batch])


def _forward(receiver: HttpClient, stream: str, events: Sequence[StreamEvent]) -> None:
    places = f"{stream} {events[0].place} {events[-1].place} {len(events)}"
    headers = {
        "content-type": "application/json",
        "webhook-id": f"msg_{hashlib.sha256(places.encode()).hexdigest()[:24]}",
        "hifi-stream": stream,
        "hifi-events": str(len(events)),
        "hifi-attempt": "1",
    }
    body = b"[" + b",".join(event.value for event in events) + b"]"
    is_away = False
    while True:
        begun_s = time.monotonic()
        sent_at = {"webhook-timestamp": str(int(time.time()))}
        try:
            answer = receiver.ask("POST", headers=headers | sent_at, body=body)
            break
        except NoHttpAnswerError as error:
            if not is_away:
                talk.print(f"{receiver.url} does not answer ({error}): events wait.")
            is_away = True
            time.sleep(_AGAIN_S)
    took_ms = (time.monotonic() - begun_s) * 1000
    what = f"{len(events)} events" if len(events) > 1 else harmless(events[0].id)
    talk.print(
        f"{answer.status}  {what}  {took_ms:.0f} ms",
        style="green" if answer.is_success else "red",
    )
    if not answer.is_success:
        talk.print(f"    {harmless(answer.text[:500])}")
