"""Bounds the bytes that requests without an answer hold, over all tenants and for each."""

from gateway.problems import Problem


class ByteBudget:
    """The bytes that requests without an answer hold, against what they may hold in all."""

    def __init__(self, bytes_max: int, *, tenant_bytes_max: int | None = None) -> None:
        self.bytes_max = bytes_max
        self.tenant_bytes_max = tenant_bytes_max or bytes_max
        self.byte_count = 0
        # Not a Counter: what it has for names that are not there is Python code.
        self._tenants: dict[str, int] = {}

    def check(self, byte_count: int, *, tenant: str, overdue_bytes: int) -> None:
        """Refuse bytes that there is no room for; nothing is taken yet."""
        if self.byte_count + overdue_bytes + byte_count > self.bytes_max:
            raise Problem(
                "overloaded",
                "Nothing of this request was stored: the gateway waits for Kafka with as many"
                " bytes as it may hold. Send the request again later.",
                headers=((b"retry-after", b"1"),),
            )
        held = self._tenants.get(tenant, 0) + byte_count
        if held > self.tenant_bytes_max:
            raise Problem(
                "tenant_in_flight",
                f"The requests of this tenant that have no answer yet hold {held} bytes; they may"
                f" hold {self.tenant_bytes_max}. Wait for answers before sending more.",
                headers=((b"retry-after", b"1"),),
                members={"limit": "tenant_in_flight_bytes_max"},
            )

    def enter(self, byte_count: int, *, tenant: str, overdue_bytes: int) -> None:
        """Take room for bytes, or refuse."""
        self.check(byte_count, tenant=tenant, overdue_bytes=overdue_bytes)
        self.byte_count += byte_count
        self._tenants[tenant] = self._tenants.get(tenant, 0) + byte_count

    def leave(self, byte_count: int, *, tenant: str) -> None:
        self.byte_count -= byte_count
        left = self._tenants[tenant] - byte_count
        if left:
            self._tenants[tenant] = left
        else:
            del self._tenants[tenant]
