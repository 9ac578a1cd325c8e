"""Bounds the bytes that unanswered requests hold, in all and for each tenant."""

from typing import Protocol

from gateway.problems import Problem


class UnfinishedBody(Protocol):
    """A body that has not arrived completely."""

    tenant: str

    @property
    def used_bytes(self) -> int: ...

    def drop(self) -> None:
        """Release the body's bytes; its request will be refused."""


class ByteBudget:
    """Bounds the bytes that unanswered requests hold.

    Bodies that never end cannot keep others out: when there is no room, the tenant that holds the
    most bytes loses its incomplete bodies, largest first.
    """

    def __init__(self, bytes_max: int, *, tenant_bytes_max: int | None = None) -> None:
        self.bytes_max = bytes_max
        self.tenant_bytes_max = tenant_bytes_max or bytes_max
        self.byte_count = 0
        # Not a Counter: its default for missing names is Python code.
        self._tenants: dict[str, int] = {}
        self._unfinished: set[UnfinishedBody] = set()

    def check(self, byte_count: int, *, tenant: str, overdue_bytes: int) -> None:
        """Refuse bytes that there is no room for; reserve nothing."""
        short = self.byte_count + overdue_bytes + byte_count - self.bytes_max
        if short > 0 and short > sum(
            body.used_bytes for body in self._droppable(byte_count, tenant)
        ):
            raise Problem(
                "overloaded",
                "Nothing of this request was stored: the gateway has reached its limit of bytes"
                " that wait for Kafka. Send the request again later.",
                headers=((b"retry-after", b"1"),),
            )
        total = self._tenants.get(tenant, 0) + byte_count
        if total > self.tenant_bytes_max:
            raise Problem(
                "tenant_in_flight",
                f"This tenant's unanswered requests would hold {total} bytes, but may hold only"
                f" {self.tenant_bytes_max}. Wait for answers before you send more.",
                headers=((b"retry-after", b"1"),),
                members={"limit": "tenant_in_flight_bytes_max"},
            )

    def enter(self, byte_count: int, *, tenant: str, overdue_bytes: int) -> None:
        """Reserve room for bytes, or refuse them."""
        self.check(byte_count, tenant=tenant, overdue_bytes=overdue_bytes)
        short = self.byte_count + overdue_bytes + byte_count - self.bytes_max
        if short > 0:
            self._make_room(short, byte_count, tenant)
        self.byte_count += byte_count
        self._tenants[tenant] = self._tenants.get(tenant, 0) + byte_count

    def leave(self, byte_count: int, *, tenant: str) -> None:
        self.byte_count -= byte_count
        left = self._tenants[tenant] - byte_count
        if left:
            self._tenants[tenant] = left
        else:
            del self._tenants[tenant]

    def begin_wait(self, body: UnfinishedBody) -> None:
        """Allow the body to be dropped until `end_wait`."""
        self._unfinished.add(body)

    def end_wait(self, body: UnfinishedBody) -> None:
        self._unfinished.discard(body)

    def _droppable(self, byte_count: int, tenant: str) -> list[UnfinishedBody]:
        """Return the incomplete bodies of tenants that hold more bytes than this one would hold."""
        own = self._tenants.get(tenant, 0) + byte_count
        return [
            body
            for body in self._unfinished
            if body.used_bytes and body.tenant != tenant and self._tenants[body.tenant] > own
        ]

    def _make_room(self, short: int, byte_count: int, tenant: str) -> None:
        able = self._droppable(byte_count, tenant)
        able.sort(key=lambda body: (self._tenants[body.tenant], body.used_bytes))
        while short > 0:
            body = able.pop()
            short -= body.used_bytes
            body.drop()
