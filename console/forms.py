"""Reads the forms that browsers send, each within its bound, and few long ones at a time."""

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
# The gateway takes documents of 1 MiB; in a form one byte of them can be three.
DOCUMENT_BYTES_MAX = BYTES_MAX + 3 * 1_048_576
# A long form takes some 10 MB with its results; a browser sends it within seconds.
_LONG_OF_A_TENANT, _LONG_IN_ALL, _READ_S = 2, 16, 30.0


@dataclass(slots=True)
class LongForms:
    """Counts the long forms under way, so that no tenant takes all of the memory or all turns."""

    of_a_tenant: int = _LONG_OF_A_TENANT
    in_all: int = _LONG_IN_ALL
    says: str = "Other long forms are being read: send this one again."
    _count: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def turn(self, tenant: str) -> Iterator[None]:
        """A turn for one, or 503; given up at the end of the block."""
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
    """The fields of a form; HTTPException when it is not one of ours.

    `on_long` is called before reading more than forms without a document have.
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
        # Nobody reads this.
        raise HTTPException(400, "The sender of this form has left.") from error
    except TimeoutError as error:
        raise HTTPException(408, "This form took too long to come: send it again.") from error
    # A long form takes a part of a second, in which others are answered.
    return await in_thread(_parsed, bytes(body))


def _parsed(body: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=50))
    except ValueError as error:
        raise HTTPException(400, "This did not come from a form of the console.") from error
