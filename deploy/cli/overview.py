"""Reads the console's overview for `hifi top`, `status` and `destinations get`; has its colours."""

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from observe.books_page import BooksPage, books_page
from shared.event.topics import destination_id
from shared.proof.overview import DestinationView, Overview, StreamVerdict
from shared.runtime.http_client import HttpClient, NoHttpAnswerError
from shared.runtime.setup_error import NoAnswerError, OperatorError, UsageError

if TYPE_CHECKING:
    from rich.text import Text

# Loopback answers in a few ms; a busy machine in a second.
_TIMEOUT_S = 5.0

_VERDICTS = {
    StreamVerdict.OK: "green",
    StreamVerdict.PAUSED: "cyan",
    StreamVerdict.SLOW: "yellow",
    StreamVerdict.RATE_LIMITED: "yellow",
    StreamVerdict.CANNOT_TELL: "bold white on grey35",
    StreamVerdict.HELD: "bold yellow",
    StreamVerdict.FAILING: "bold red",
    StreamVerdict.REJECTING: "bold red",
    StreamVerdict.DISABLED: "bold red",
    StreamVerdict.STALLED: "bold red",
    StreamVerdict.LOSING: "bold white on red",
}


class NotLetInError(UsageError):
    """The console refused a missing or wrong key, as a gateway does."""

    exit_code = OperatorError.exit_code


class ConsoleClient(HttpClient):
    """Asks the console at an address, with one caller's key."""

    def __init__(self, console: str, api_key: str | None) -> None:
        super().__init__(console, timeout_s=_TIMEOUT_S)
        self._caller = {} if api_key is None else {"authorization": f"Bearer {api_key}"}

    def overview(self) -> dict[str, Any]:
        """Return the current overview, as far as the key may see it."""
        try:
            answer = self.ask("GET", "/api/overview", headers=self._caller)
        except NoHttpAnswerError as error:
            raise NoAnswerError(
                f"No console answers at {self.url} ({error}):"
                " start one with `hifi up`, or name another console with --console URL."
            ) from error
        if answer.status == HTTPStatus.UNAUTHORIZED:
            raise NotLetInError(
                f"The console at {self.url} requires a valid key:"
                " give one with --api-key or HIFI_API_KEY."
            )
        try:
            overview: dict[str, Any] = answer.json()
        except ValueError:
            overview = {}
        if not answer.is_success or "streams" not in overview:
            raise UsageError(
                f"The server at {self.url} is not a Hifi console (it answered {answer.status}):"
                " name the console with --console URL."
            )
        return overview


def read_books(console: str, api_key: str | None) -> BooksPage:
    """Return the console's books, as far as the key may see them."""
    with ConsoleClient(console, api_key) as client:
        shown = client.overview()
    try:
        overview = msgspec.convert(shown, Overview)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"The console at {console} runs another release ({error}): use `hifi top` instead."
        ) from error
    return books_page(overview, kafka="")


def read_view(client: ConsoleClient, stream: str, name: str) -> DestinationView | None:
    """Return the console's view of one destination; None if the console does not know it."""
    wanted = destination_id(stream, name)
    for shown in client.overview()["streams"]:
        for view in shown["destinations"]:
            if view["destination_id"] == wanted:
                return msgspec.convert(view, DestinationView)
    return None


def verdict_text(word: str) -> "Text":
    """Return a verdict in its colour; it may have blanks around it."""
    from rich.text import Text  # noqa: PLC0415 - loaded only when something is shown

    return Text(word, style=_VERDICTS[StreamVerdict(word.strip())])
