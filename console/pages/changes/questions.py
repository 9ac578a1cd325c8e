"""Asks a person before a change, and makes the change once they confirm."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog
from starlette.responses import RedirectResponse, Response

from console.forms import BYTES_MAX
from console.page_context import PageContext
from console.page_request import Answer, PageRequest
from console.parts.layout import Page, confirm_form, still_page
from console.parts.markup import Child, Safe, fragment, tag
from console.parts.pieces import code

log = structlog.get_logger()


class ChangeByForm(NamedTuple):
    """The page that asks before a change, and the action that makes it; both at one path."""

    ask: Answer
    make: Answer
    form_bytes_max: int = BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeQuestion:
    """A change to confirm; `words`: the text before its name, after its name, and on the button."""

    name: str
    words: tuple[str, str, str]
    says: Child
    also: Child
    # The highlighted page, and the one to return to without the change.
    here: str
    back: str
    # Its path in the gateway's API.
    at: tuple[str, ...]
    # Fields of the form besides the version that was seen.
    fields: Mapping[str, str] = field(default_factory=dict)

    async def page(self, asked: PageRequest) -> Page:
        before, behind, yes = self.words
        # Fetched in any case: the gateway may refuse the viewer.
        version = await asked.control.version(*self.at)
        content = (
            tag("h1", before, code(self.name), behind),
            tag("p", self.says),
            tag("p", self.also, class_="quiet"),
            confirm_form(
                asked.path,
                asked.around,
                yes=yes,
                no="Cancel",
                back=self.back,
                version=version,
                **self.fields,
            ),
        )
        return still_page(f"{before}{self.name}{behind}", self.here, "confirm", content)


def same(command: str) -> Safe:
    """Name the command that does the same as the form."""
    return fragment("As a command: ", code(command), ".")


async def done(
    asked: PageRequest,
    what: str,
    change: Awaitable[Any],
    *,
    seen: Callable[[PageContext], bool],
    back: str,
    **said: str,
) -> Response:
    """Log the author, make the change, and go to the next page once the change shows."""
    log.info(what, key_id=asked.viewer.key_id, **said)
    await change
    await asked.wait_until(seen)
    return RedirectResponse(back, status_code=303)
