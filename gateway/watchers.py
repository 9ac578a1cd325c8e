"""Counts clients that wait for future events or rows, so that no tenant takes others' places."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.types import Receive

from gateway.problems import Problem

_WATCHERS_MAX, _OF_A_TENANT_MAX = 500, 50


@dataclass(slots=True)
class Watchers:
    """The clients that watch something by this process; bounded for each tenant and in all."""

    of_tenant_max: int = _OF_A_TENANT_MAX
    count_max: int = _WATCHERS_MAX
    # Set when the process ends: clients come again elsewhere.
    are_leaving: bool = False
    _count: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def place(self, tenant: str) -> Iterator[None]:
        """Hold a place for one more until the end of the block; Problem if there is none."""
        if self._count[tenant] >= self.of_tenant_max or self._count.total() >= self.count_max:
            raise Problem(
                "too_many_watchers",
                f"This gateway has as many who watch as it may: {self.of_tenant_max} of a tenant,"
                f" {self.count_max} in all.",
                headers=((b"retry-after", b"5"),),
            )
        self._count[tenant] += 1
        try:
            yield
        finally:
            self._count[tenant] -= 1
            if not self._count[tenant]:
                del self._count[tenant]


async def client_left(receive: Receive) -> None:
    """End when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
