"""Asks the console what it shows, for `hifi top`, `status`, `destinations get`; its colours."""

from typing import Any

import httpx
import msgspec
from rich.text import Text

from observe.books_page import BooksPage, books_page
from shared.event.topics import destination_id
from shared.proof.overview import DestinationView, Overview, StreamVerdict
from shared.runtime.setup_error import NoAnswerError, UsageError

# Loopback answers in a few ms; a busy machine in a second.
_TIMEOUT_S = 5.0

_VERDICTS = {
    StreamVerdict.OK: "green",
    StreamVerdict.PAUSED: "cyan",
    StreamVerdict.SLOW: "yellow",
    StreamVerdict.THROTTLED: "yellow",
    StreamVerdict.CANNOT_TELL: "bold white on grey35",
    StreamVerdict.HELD: "bold yellow",
    StreamVerdict.FAILING: "bold red",
    StreamVerdict.REJECTING: "bold red",
    StreamVerdict.DISABLED: "bold red",
    StreamVerdict.STALLED: "bold red",
    StreamVerdict.LOSING: "bold white on red",
}


def console_client(console: str, api_key: str | None) -> httpx.Client:
    headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
    return httpx.Client(base_url=console, headers=headers, timeout=_TIMEOUT_S)


def read_overview(client: httpx.Client) -> dict[str, Any]:
    """The overview as it is now, of what the key may see."""
    try:
        answer = client.get("/api/overview")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NoAnswerError(
            f"No console answers at {client.base_url} ({error}):"
            " start one with `hifi up`, or name another with --console URL."
        ) from error
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        raise UsageError(
            f"The console at {client.base_url} asks for a key:"
            " name one with --api-key or HIFI_API_KEY."
        )
    try:
        answer.raise_for_status()
        overview: dict[str, Any] = answer.json()
    except (httpx.HTTPStatusError, ValueError) as error:
        raise UsageError(
            f"What answers at {client.base_url} is no console of Hifi ({error}):"
            " name it with --console URL."
        ) from error
    return overview


def read_books(console: str, api_key: str | None) -> BooksPage:
    """The books of what the key may see, as the console has them."""
    with console_client(console, api_key) as client:
        shown = read_overview(client)
    try:
        overview = msgspec.convert(shown, Overview)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"The console at {console} is of another release ({error}): `hifi top` shows it."
        ) from error
    return books_page(overview, kafka="")


def read_view(client: httpx.Client, stream: str, name: str) -> DestinationView | None:
    """What the console shows of one destination; None of one that it has not heard of."""
    wanted = destination_id(stream, name)
    for shown in read_overview(client)["streams"]:
        for view in shown["destinations"]:
            if view["destination_id"] == wanted:
                return msgspec.convert(view, DestinationView)
    return None


def verdict_text(word: str) -> Text:
    """A verdict in its colour, also with blanks around it."""
    return Text(word, style=_VERDICTS[StreamVerdict(word.strip())])
