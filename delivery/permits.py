"""Asks a destination's flow for leave to send, for one task, and tells it what came of that."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from delivery.flow_store import FlowStore, Held
from shared.config.destination import Destination
from shared.flow.flow import Ended, SendLimits, is_calm
from shared.flow.flow_record import FlowRecord
from shared.runtime.clock import now_ms


@dataclass(slots=True)
class Permits:
    """What one task asks of one destination's flow."""

    # A name for the task, by which the flow shares requests out.
    task: str
    store: FlowStore
    destination: Destination
    limits: SendLimits
    # While a destination is well, its flow is asked and told so often, and not for each request.
    calm_s: float = 0.0
    _calm_until_s: float = 0.0
    _tell_at_s: float = 0.0
    _untold: list[Ended] = field(default_factory=list)
    _news: FlowRecord | None = None

    @contextmanager
    def look(self, *, tells: bool) -> Iterator[Held]:
        """Look at the flow while nobody else changes it; `tells` if something has ended."""
        with self.store.hold(self.destination, self.limits, now_ms=now_ms()) as held:
            self._tell(held)
            yield held
            # Asked here, as an event that comes alone would pay for another look at the file.
            self._news = held.to_publish() or self._news
            until_s = time.monotonic() + self.calm_s
            is_well = is_calm(held.flow, self.limits, now_ms=held.now_ms)
            self._calm_until_s = until_s if is_well else 0.0
            if tells:
                self._tell_at_s = until_s

    def may_skip(self, *, tells: bool) -> bool:
        """Whether a request may go without a look, as the destination was well a moment ago."""
        now_s = time.monotonic()
        return now_s < self._calm_until_s and not (tells and now_s >= self._tell_at_s)

    def tell_later(self, delivered: Ended) -> None:
        self._untold.append(delivered)

    def news(self) -> FlowRecord | None:
        """What others should hear of the destination, once; None if there is nothing new."""
        news, self._news = self._news, None
        return news

    def leave(self) -> None:
        """Send no more: this task's share of requests is the others'."""
        with self.store.hold(self.destination, self.limits, now_ms=now_ms()) as held:
            self._tell(held)
            held.leave(self.task)

    def _tell(self, held: Held) -> None:
        """What ended since the flow was last told: deliveries, of which none is worth a roll."""
        for delivered in self._untold:
            held.enter(delivered, roll=0.0)
        self._untold.clear()
