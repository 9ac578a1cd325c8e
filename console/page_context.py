"""The data of pages: the newest overview, the configuration, the state of flows, and the past."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

from console.viewers import Viewer
from observe.notify.last_message import LastMessage
from observe.series.series import PastSource
from shared.config.configuration import Configuration
from shared.config.destination import Destination
from shared.flow.flow_record import FlowRecord
from shared.proof.overview import (
    SEVERITY,
    DestinationView,
    Overview,
    PipelineView,
    StreamVerdict,
    StreamView,
)


@dataclass(frozen=True, slots=True)
class PageContext:
    overview: Overview
    configuration: Configuration
    flows: Mapping[str, FlowRecord] = field(default_factory=dict)
    series: PastSource | None = None
    # A sentence for each service that keeps dying.
    ailing: Sequence[str] = ()
    # By channel: the last message that this observer sent to it.
    told: Mapping[str, LastMessage] = field(default_factory=dict)

    def seen_by(self, viewer: Viewer) -> "PageContext":
        """Return the same context with only the streams and tables that the viewer may see."""
        streams = tuple(
            stream
            for stream in self.overview.streams
            if viewer.sees(stream.name, tenant=self.tenant_of(stream.name))
        )
        removed = tuple(
            gone
            for gone in self.overview.removed
            if viewer.sees(gone.stream, tenant=self.tenant_of(gone.stream))
        )
        unknown = tuple(
            each
            for each in self.overview.unknown
            if viewer.sees(each.stream, tenant=self.tenant_of(each.stream))
        )
        # A pipeline's document names other streams, so only viewers of all of them may see it.
        pipelines = tuple(
            each
            for each in self.overview.pipelines
            if all(
                viewer.sees(stream, tenant=self.tenant_of(stream))
                for stream in self._streams_of(each)
            )
        )
        seen = replace(
            self.overview, streams=streams, removed=removed, unknown=unknown, pipelines=pipelines
        )
        known = self.configuration.tables
        tables = {name: each for name, each in known.items() if viewer.sees_tables(each.tenant)}
        return replace(
            self,
            overview=seen,
            configuration=replace(self.configuration, tables=tables),
            # Only the operator may see machines and their logs.
            ailing=self.ailing if viewer.tenant is None else (),
        )

    def _streams_of(self, view: PipelineView) -> set[str]:
        pipeline = self.configuration.pipelines.get(view.name)
        return {view.stream, *(pipeline.streams if pipeline else ())}

    def tenant_of(self, stream: str) -> str:
        return self.configuration.tenant_of(stream)

    def destination(self, destination_id: str) -> DestinationView | None:
        views = self.overview.destinations
        return next((view for view in views if view.destination_id == destination_id), None)

    def stream(self, name: str) -> StreamView | None:
        return next((view for view in self.overview.streams if view.name == name), None)

    def configured(self, destination_id: str) -> Destination | None:
        return self.configuration.destinations.get(destination_id)


def is_in_trouble(verdict: StreamVerdict) -> bool:
    """Return whether a verdict is trouble; a pause is not, as it is intended."""
    return verdict not in {StreamVerdict.OK, StreamVerdict.PAUSED}


def worst_first(destinations: Iterable[DestinationView]) -> list[DestinationView]:
    """Sort the destinations by severity, worst first, then by id."""
    return sorted(
        destinations, key=lambda view: (-SEVERITY.index(view.verdict), view.destination_id)
    )


def slowest(destinations: Iterable[DestinationView]) -> DestinationView | None:
    """Return the destination whose recent events took longest on average; None without any."""
    timed = [(view.since_accepted.mean_ms, view) for view in destinations if view.since_accepted]
    return max(timed, key=itemgetter(0), default=(0, None))[1]
