"""Tracks whether the tables that pipelines name are ready, and keeps them followed."""

from pipelines.settings import PipelinesSettings
from pipelines.tables.look_ups import NO_TABLES, CopyRows, Tables
from shared.config.configuration import Configuration
from shared.config.pipeline import Pipeline
from shared.config.table import Table
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.tables.folders import TableCopies
from shared.runtime.tables.keeper import keep_followed

# The folder of an executor's copies, within the folder in which it runs.
_OF_AN_EXECUTOR = "tables"


class KnownTables:
    """The tables of one process."""

    def __init__(self, settings: PipelinesSettings) -> None:
        self.settings = settings
        self._copies = TableCopies(settings.tables_folder.absolute())

    def of(self, pipeline: Pipeline, configuration: Configuration) -> Tables | None:
        """Return a plan's tables; None while a table is missing or has no copy here.

        The pipeline does not start before all are there: a job that waits for a table would delay
        all its pipelines.
        """
        if not pipeline.tables:
            return NO_TABLES
        there = dict(configuration.tables)
        if configuration.replacement_of(pipeline.name) == pipeline:
            built = configuration.replacements[pipeline.name].built(there)
            there |= {table.name: table for table in built}
        known = {
            name: table
            for name in pipeline.tables
            if (table := there.get(name)) is not None and table.tenant == pipeline.tenant
        }
        if known.keys() != pipeline.tables:
            return None
        look_ups = {name: self._rows(known[name]) for name in pipeline.tables_from}
        is_ready = self._is_on_a_cluster or all(
            self._copies.of(known[name]) is not None for name in look_ups
        )
        written = {name: known[name] for name in pipeline.tables_to}
        return Tables(written, look_ups) if is_ready else None

    async def keep_followed(self, config: ConfigFeed) -> None:
        """Keep the tables followed as long as some pipeline looks something up."""

        def is_needed() -> bool:
            return any(pipeline.tables_from for pipeline in config.configuration.documents)

        folder = self.settings.tables_folder
        await keep_followed(folder, self.settings.bootstrap_servers, is_needed)

    @property
    def _is_on_a_cluster(self) -> bool:
        return self.settings.spark_master != "local"

    def _rows(self, table: Table) -> CopyRows:
        if self._is_on_a_cluster:
            return CopyRows(_OF_AN_EXECUTOR, table, self.settings.bootstrap_servers)
        return CopyRows(str(self.settings.tables_folder.absolute()), table)
