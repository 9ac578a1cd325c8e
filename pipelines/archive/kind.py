"""Makes archive sinks for pipelines."""

from collections.abc import Mapping
from pathlib import Path

from pipelines.archive.sink import ArchiveSink
from pipelines.jobs.sink import SinkAwayError, SinkKind
from pipelines.lanes.gathering import Gathering
from pipelines.settings import PipelinesSettings
from shared.config.outside.store import Store
from shared.config.pipeline import Pipeline, ToArchive
from shared.proof.archived import ArchiveId
from shared.runtime.archive.stores import read_stores

# Well within a job's time limit of 300 s: after a slower job, the next has fewer events.
_TIME_BOX_S = 60.0


def archive_kind(settings: PipelinesSettings) -> SinkKind:
    """Make the kind of sink, with the stores of its file, which is read once."""
    stores = read_stores(settings.stores)
    folders = settings.store_folders and settings.store_folders.absolute()
    gathering = Gathering(
        linger_s=settings.archive_every_s,
        events_max=settings.archive_events_max,
        time_box_s=_TIME_BOX_S,
    )
    return SinkKind(gathering, lambda pipeline, life: archive_sink(pipeline, life, stores, folders))


def archive_sink(
    pipeline: Pipeline, life: str, stores: dict[str, Store], folders: Path | None
) -> ArchiveSink:
    """Make the sink; raise SinkAwayError if the pipeline may not use its store."""
    return ArchiveSink(
        store_for(pipeline, stores),
        ArchiveId(pipeline.tenant, pipeline.source.stream, pipeline.name, life),
        pipeline.fingerprint,
        pipeline.is_tee,
        folders,
    )


def store_for(pipeline: Pipeline, stores: Mapping[str, Store]) -> Store:
    """Return the store of an archive; raise SinkAwayError if there is none for it."""
    output = pipeline.sink
    assert isinstance(output, ToArchive), "it archives"
    store = stores.get(output.archive)
    if store is None or not store.allows(pipeline.tenant):
        # Tenants may not see the names of others' stores.
        allowed = sorted(name for name, each in stores.items() if each.allows(pipeline.tenant))
        there = f"there are {', '.join(allowed)}" if allowed else "the operator configures stores"
        raise SinkAwayError(f"there is no store {output.archive!r} for {pipeline.tenant}: {there}")
    return store
