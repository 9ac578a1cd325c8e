"""Decides what a request says besides its events: its name, its number, if it may be a repeat."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from delivery.batches import Batch
from delivery.body import CONTENT_TYPES, batch_id
from delivery.http.sender import Sender
from delivery.outcomes import Exchange
from shared.config.destination import Destination
from shared.event.record import KafkaPartition, Position
from shared.proof.receipt import Covered
from shared.retry.attempt import Attempt


@dataclass(frozen=True, slots=True)
class Courier:
    """Makes the exchanges of one task."""

    sender: Sender
    clock: Callable[[], int]
    # Offsets below these may have been sent by a micro-batch that died before its checkpoint.
    replay_until: Position
    # Another try of this very task died: what it sent, nobody knows.
    is_again: bool

    async def send(self, destination: Destination, batch: Batch) -> tuple[Attempt, Exchange, float]:
        """Send a batch once; what came of it, when that was, and the milliseconds it took."""
        covered = batch.facts.covered
        name = batch_id(destination.id, covered)
        started_at_ms = self.clock()
        headers = {
            "content-type": CONTENT_TYPES[destination.body_format],
            "user-agent": "hifi",
            "webhook-id": name,
            "webhook-timestamp": str(started_at_ms // 1000),
            "hifi-stream": destination.stream,
            "hifi-events": str(batch.event_count),
            "hifi-attempt": str(max(history.attempt_count for history in batch.histories) + 1),
        }
        if self._may_be_duplicate(batch, covered):
            headers["hifi-maybe-duplicate"] = "1"
        # The retrier may have events of several in one batch, and of none.
        replays = sorted({history.replay_id for history in batch.histories} - {""})
        if replays:
            headers["hifi-replay"] = ", ".join(replays)
        body = batch.body(destination)
        started_s = time.perf_counter()
        attempt = await self.sender.send(destination, body, headers)
        latency_ms = (time.perf_counter() - started_s) * 1000
        return attempt, Exchange(name, started_at_ms, self.clock()), latency_ms

    def _may_be_duplicate(self, batch: Batch, covered: Iterable[Covered]) -> bool:
        if self.is_again or any(history.is_ambiguous for history in batch.histories):
            return True
        return any(
            part.first < self.replay_until.get(KafkaPartition(part.topic, part.partition), 0)
            for part in covered
        )
