"""Keeps requested replays in memory where there is no Kafka."""

from typing import TYPE_CHECKING

from msgspec import structs

from gateway.control.stores.replays import Judge, ReplayStore
from shared.retry.replay import Replay, Replays, Spans

if TYPE_CHECKING:
    from tests.support.gateway.gateway_fixtures import RunningGateway


class FakeReplays(ReplayStore):
    """Replays of streams that have as many events as a test says."""

    def __init__(self) -> None:
        super().__init__("nowhere")
        self.known: Replays = {}
        self.event_count = 1_204

    async def newest(self) -> Replays:
        return dict(self.known)

    async def change(self, judge: Judge) -> None:
        if (order := judge(dict(self.known))) is not None:
            place = order.stream, order.id
            self.known[place] = structs.replace(self.known.get(place, Replay()), order=order)

    async def spans(self, *_: object) -> Spans:
        return {0: (0, self.event_count)}


def replays_of(gateway: "RunningGateway") -> FakeReplays:
    assert isinstance(gateway.replays, FakeReplays)
    return gateway.replays
