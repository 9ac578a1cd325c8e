"""Holds the driver's side of databases: makes sinks, and decides whether a server is tried.

All pipelines of a tenant that write to one server share a breaker, as for destinations. While it is
open, none of them has a job; then one of them tries the server.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.databases.sink import DatabaseSink
from pipelines.jobs.sink import SinkAwayError, SinkKind
from pipelines.lanes.gathering import Gathering
from pipelines.members import columns_of
from shared.config.outside.database import DatabaseTable
from shared.config.pipeline import Pipeline
from shared.event.record import KafkaPartition
from shared.event.topics import stream_topic
from shared.flow.breaker import Breaker, Start, answered, asked, unanswered

# More events would not make transactions more efficient, and a long one delays the next.
_GATHERING = Gathering(linger_s=0.2, events_max=10_000, time_box_s=5.0)
# A failing server is tried again after 1 s, and later every 30 s while it stays away.
_OPEN_MS_MIN = 1_000.0
# A job that has sent no news for this long has died with its process.
_PROBE_MS = 310_000
_BREAKERS_MAX = 1_000


@dataclass(slots=True)
class Databases:
    """Makes sinks from documents. One for a process."""

    allows_private: bool
    files: Path | None
    clock: Callable[[], int]
    # The ends of the streams' logs, as the book has them.
    ends: Mapping[KafkaPartition, int] = field(default_factory=dict)
    # Keyed by tenant and the servers that its pipeline writes to.
    _breakers: dict[tuple[str, ...], Breaker] = field(default_factory=dict)
    _probing: set[str] = field(default_factory=set)
    _spread: random.Random = field(default_factory=random.Random)

    @property
    def kind(self) -> SinkKind:
        return SinkKind(_GATHERING, self.made, self.ended)

    def made(self, pipeline: Pipeline, topic_id: str) -> DatabaseSink:
        """Make the sink; raise SinkAwayError while its server's breaker is open."""
        table, topic = _table(pipeline), stream_topic(pipeline.source.stream)
        servers = _servers(pipeline)
        breaker, answer = asked(
            self._breakers.get(servers, Breaker()),
            open_ms_min=_OPEN_MS_MIN,
            probe_lease_ms=_PROBE_MS,
            now_ms=self.clock(),
        )
        self._keep(servers, breaker)
        if not isinstance(answer, Start):
            raise SinkAwayError("its database has just failed to answer other pipelines")
        if answer.is_probe:
            self._probing.add(pipeline.name)
        return DatabaseSink(
            pipeline.name if pipeline.generation == 1 else f"{pipeline.name}/{pipeline.generation}",
            pipeline.owner,
            table,
            columns_of(pipeline),
            self.allows_private,
            None if self.files is None else self.files / pipeline.tenant,
            {at.partition: end for at, end in self.ends.items() if at.topic == topic},
            topic_id,
        )

    def ended(self, pipeline: Pipeline, error: Exception | None) -> None:
        """Note how a job has ended; errors elsewhere do not count against its server."""
        servers = _servers(pipeline)
        breaker = self._breakers.get(servers, Breaker())
        is_probe = pipeline.name in self._probing
        self._probing.discard(pipeline.name)
        is_away = isinstance(error, SinkAwayError) and not error.is_wrongly_set
        if error is not None and not is_away:
            self._keep(servers, unanswered(breaker, is_probe=is_probe))
            return
        after = answered(
            breaker,
            is_failure=error is not None,
            is_probe=is_probe,
            parallel=1,
            open_ms_min=_OPEN_MS_MIN,
            now_ms=self.clock(),
            roll=self._spread.random(),
        )
        self._keep(servers, after)

    def _keep(self, servers: tuple[str, ...], breaker: Breaker) -> None:
        self._breakers.pop(servers, None)
        if breaker == Breaker():
            return
        if len(self._breakers) >= _BREAKERS_MAX:
            # Drop the breaker whose last use was longest ago.
            del self._breakers[next(iter(self._breakers))]
        self._breakers[servers] = breaker


def _table(pipeline: Pipeline) -> DatabaseTable:
    table = pipeline.to_database
    assert table is not None, "it writes to a database"
    return table


def _servers(pipeline: Pipeline) -> tuple[str, ...]:
    table = _table(pipeline)
    return pipeline.tenant, *sorted({table.url, *(shard.url or "" for shard in table.shards)})
