"""Counts clients that wait for new events or rows, so that no tenant takes all places."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.types import Receive

from gateway.problems import Problem

_WATCHERS_MAX, _OF_A_TENANT_MAX = 500, 50


@dataclass(slots=True)
class Watchers:
    """The clients that watch something at this process; bounded for each tenant and in all."""

    of_tenant_max: int = _OF_A_TENANT_MAX
    count_max: int = _WATCHERS_MAX
    # Set when the process stops: clients reconnect to another one.
    are_leaving: bool = False
    _count: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def place(self, tenant: str) -> Iterator[None]:
        """Hold a place for one more client during the block; raise Problem if there is none."""
        if self._count[tenant] >= self.of_tenant_max or self._count.total() >= self.count_max:
            raise Problem(
                "too_many_watchers",
                f"This gateway serves at most {self.of_tenant_max} watchers of a tenant, and"
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
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
