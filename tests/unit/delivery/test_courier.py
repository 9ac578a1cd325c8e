"""The time of a request: the destination's part, and Hifi's own part."""

import asyncio
from typing import Any, cast

import pytest

from delivery import courier as module
from delivery.attempt_log import AttemptLog
from delivery.batches import TriedEvent, tried_batches
from delivery.courier import Courier, RequestResult
from shared.config.destination import Destination
from shared.retry.attempt import Attempt, Response
from shared.runtime.spark.processor_time import ProcessorTime
from tests.support.suite.samples import NOW_MS, a_history, an_envelope

TO = Destination("orders", "shop", "http://localhost/")
EXCHANGE_S = 0.05


class SlowSender:
    """A sender that answers after a moment, while its worker is busy with other work."""

    def __init__(self) -> None:
        self.had = ProcessorTime(1.0, 2.0)

    async def post(self, *_: object, **__: object) -> Attempt:
        await asyncio.sleep(EXCHANGE_S)
        self.had = ProcessorTime(self.had.ran_s + 0.01, self.had.delayed_s + 0.03)
        return Response(200)


def test_what_a_worker_has_else_to_do_is_no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    sender = SlowSender()
    monkeypatch.setattr(module, "processor_time", lambda: sender.had)
    courier = Courier(cast("Any", sender), AttemptLog(), lambda: NOW_MS)
    (batch,) = tried_batches([TriedEvent(an_envelope(), a_history())], TO)

    async def attempted() -> RequestResult:
        return await courier.attempt(TO, batch)

    sent = asyncio.run(attempted())
    assert sent.latency_ms >= 1_000 * EXCHANGE_S
    assert sent.waited_ms == pytest.approx(sent.latency_ms - 40)
