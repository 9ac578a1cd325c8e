"""Counts a destination's recent answers, and keeps the newest requests that it refused."""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from observe.lag.step_counts import StepCounts
from shared.proof.last_answer import SHOWN_CHARS_MAX
from shared.proof.overview import Answers, RefusedRequest
from shared.proof.receipt import Receipt, ReceiptOutcome

_NEWEST = 5
# Destinations may answer any status; after this many kinds, all others count as one.
_KINDS_MAX = 20
_OTHERS = "other"


@dataclass(slots=True)
class RecentAnswers:
    """Requests of the last minutes, by outcome."""

    _counts: StepCounts = field(default_factory=StepCounts)
    _newest: deque[RefusedRequest] = field(default_factory=lambda: deque(maxlen=_NEWEST))
    # The batch of the last receipt, and its end: a partly accepted batch has several receipts.
    _last: tuple[str, int] = ("", 0)

    def add(self, receipt: Receipt) -> None:
        """Enter a receipt, unless another receipt of its batch has reported the same requests."""
        one = receipt.batch_id, receipt.ended_at_ms
        if not receipt.batch_id or one == self._last:
            return
        self._last = one
        counts = self._counts.at(receipt.ended_at_ms)
        for reason in _reasons(receipt):
            is_told = reason in counts or len(counts) < _KINDS_MAX
            counts[reason if is_told else _OTHERS] += 1
        for failed in receipt.failed_tries[-_NEWEST:]:
            shown = replace(failed, text=failed.text[:SHOWN_CHARS_MAX], headers={})
            self._newest.append(RefusedRequest(receipt.batch_id, receipt.event_count, shown))

    def of(self, step: int) -> Counter[str]:
        """Return the number of requests of one step, by outcome."""
        return self._counts.of(step)

    def read(self, *, now_ms: int, span_ms: int) -> Answers:
        """Return the answers of the last `span_ms`, most frequent first; drop older ones."""
        total = self._counts.read(now_ms=now_ms, span_ms=span_ms)
        return Answers(dict(total.most_common(_KINDS_MAX)), tuple(reversed(self._newest)))


def _reasons(receipt: Receipt) -> Iterator[str]:
    """Yield the outcome of each request of a round."""
    for failed in receipt.failed_tries:
        yield failed.reason
    if receipt.outcome is ReceiptOutcome.DELIVERED:
        yield receipt.reason
