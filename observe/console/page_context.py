"""What pages are made from: the newest overview, the configuration, flow, and lag lately."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from observe.console.lag_history import LagHistory
from observe.console.viewers import Viewer
from shared.config.configuration import Configuration
from shared.config.destination import Destination
from shared.flow.flow_record import FlowRecord
from shared.proof.overview import DestinationView, Overview, StreamVerdict, StreamView

# As shared.proof.overview ranks them, the other way round: the reader's eye starts at the top.
WORST_FIRST = (
    StreamVerdict.LOSING,
    StreamVerdict.STALLED,
    StreamVerdict.CANNOT_TELL,
    StreamVerdict.SLOW,
    StreamVerdict.OK,
)


@dataclass(frozen=True, slots=True)
class FlowView:
    """How fast a destination is being sent to, and what holds it back."""

    breaker: str
    concurrency: int | None = None
    since_ms: int | None = None
    reopens_at_ms: int | None = None
    # Since when it has failed without one success.
    failing_since_ms: int | None = None


def flow_of(record: FlowRecord) -> FlowView:
    """What a state record says to people."""
    return FlowView(
        record.state.value,
        record.flow.concurrency.limit,
        since_ms=record.since_ms or None,
        reopens_at_ms=record.until_ms or None,
        failing_since_ms=record.flow.failing_since_ms or None,
    )


@dataclass(frozen=True, slots=True)
class PageContext:
    overview: Overview
    configuration: Configuration
    flows: Mapping[str, FlowView] = field(default_factory=dict)
    lag_history: LagHistory = field(default_factory=LagHistory)

    def seen_by(self, viewer: Viewer) -> "PageContext":
        """The same with only those streams that somebody may see."""
        streams = tuple(
            stream
            for stream in self.overview.streams
            if viewer.sees(stream.name, tenant=self.tenant_of(stream.name))
        )
        return replace(self, overview=replace(self.overview, streams=streams))

    def tenant_of(self, stream: str) -> str:
        """Whose stream it is; one that is not configured (any more) is nobody's."""
        configured = self.configuration.streams.get(stream)
        return configured.tenant if configured else ""

    @property
    def destinations(self) -> list[DestinationView]:
        return [each for stream in self.overview.streams for each in stream.destinations]

    def destination(self, destination_id: str) -> DestinationView | None:
        views = self.destinations
        return next((view for view in views if view.destination_id == destination_id), None)

    def stream(self, name: str) -> StreamView | None:
        return next((view for view in self.overview.streams if view.name == name), None)

    def configured(self, destination_id: str) -> Destination | None:
        return self.configuration.destinations.get(destination_id)


def worst_first(
    destinations: Iterator[DestinationView] | list[DestinationView],
) -> list[DestinationView]:
    return sorted(
        destinations, key=lambda view: (WORST_FIRST.index(view.verdict), view.destination_id)
    )


def slowest(destinations: list[DestinationView]) -> DestinationView | None:
    """Whose events are under way longest, of those that had any lately."""
    timed = [view for view in destinations if view.since_accepted is not None]
    return max(
        timed,
        key=lambda view: view.since_accepted.mean_ms if view.since_accepted else 0,
        default=None,
    )
