"""Keeps in memory the rows that workers and drivers store: the fake of an `Outlet`."""

from collections.abc import Awaitable, Callable, Sequence

from aiokafka.errors import MessageSizeTooLargeError

from delivery.lanes.outlet import Outlet
from shared.event.record import RecordOut
from shared.event.topics import OUTCOME_BYTES_MAX


class MemoryOutlet(Outlet):
    """Keeps rows in the order in which they are stored."""

    def __init__(self) -> None:
        self.rows: list[RecordOut] = []
        # The error with which a row is refused, if it is.
        self.refusal: Callable[[RecordOut], Exception | None] = lambda _: None
        # Awaited before a row is stored.
        self.awaits: Callable[[RecordOut], Awaitable[object] | None] = lambda _: None

    async def store(self, rows: Sequence[RecordOut]) -> None:
        for row in rows:
            if before := self.awaits(row):
                await before
            if error := self.refusal(row):
                raise error
            if len(row.value or b"") > OUTCOME_BYTES_MAX:
                raise MessageSizeTooLargeError
            self.rows.append(row)

    async def take_away(self, topic: str, keys: Sequence[bytes]) -> None:
        self.rows += [RecordOut(topic, key, None) for key in keys]  # type: ignore[arg-type]

    async def close(self) -> None:
        """End nothing."""
