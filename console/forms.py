"""Reads the forms that browsers send, with a limit for each, and only a few long ones at a time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from console.page_threads import InThread

# The limit of forms without a document: a key has 160 characters at most.
BYTES_MAX = 16_384
# The gateway takes documents of 1 MiB; in a form, a byte can take three.
DOCUMENT_BYTES_MAX = BYTES_MAX + 3 * 1_048_576
# A long form takes some 10 MB of memory with its results; a browser sends it within seconds.
_LONG_OF_A_TENANT, _LONG_IN_ALL, _READ_S = 2, 16, 30.0


@dataclass(slots=True)
class LongForms:
    """Counts the long forms in progress, so that no tenant takes all memory or all turns."""

    of_a_tenant: int = _LONG_OF_A_TENANT
    in_all: int = _LONG_IN_ALL
    says: str = "Other long forms are being read. Send this one again."
    _count: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def turn(self, tenant: str) -> Iterator[None]:
        """Hold a turn for the length of the block; 503 if there is none."""
        if self._count[tenant] >= self.of_a_tenant or self._count.total() >= self.in_all:
            raise HTTPException(503, self.says)
        self._count[tenant] += 1
        try:
            yield
        finally:
            self._count[tenant] -= 1


async def form_of(
    request: Request,
    in_thread: InThread,
    *,
    bytes_max: int = BYTES_MAX,
    on_long: Callable[[], object] = lambda: None,
) -> dict[str, str]:
    """Return the fields of a form; HTTPException if it is not one of our forms.

    `on_long` is called before more is read than a form without a document can contain.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(_READ_S):
            async for chunk in request.stream():
                if len(body) <= BYTES_MAX < len(body) + len(chunk):
                    on_long()
                body += chunk
                if len(body) > bytes_max:
                    raise HTTPException(413, "This form is too long.")
    except ClientDisconnect as error:
        # Nobody reads this answer.
        raise HTTPException(400, "The sender of this form has left.") from error
    except TimeoutError as error:
        raise HTTPException(408, "This form took too long to arrive. Send it again.") from error
    # Parsing a long form takes a fraction of a second; in a thread it delays nobody else.
    return await in_thread(_parsed, bytes(body))


def _parsed(body: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=50))
    except ValueError as error:
        raise HTTPException(400, "This request is not from a form of the console.") from error
