"""Runs the audit: starts Spark once, audits at intervals, and survives Kafka's failures."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import structlog
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from observe.audit.audit_run import Audit, AuditOutcome, Hear, nobody_hears
from observe.audit.kafka import audit_kafka, saved_memory
from observe.audit.memory import Memory
from observe.audit.minutes import Rules
from observe.audit.signing import Signer
from observe.audit.spark_job import TASK_PLACES, AuditReads
from observe.audit.status import AuditStatus
from observe.settings import ObserveSettings
from shared.config.configuration import Configuration
from shared.event.topics import stream_topic
from shared.proof.overview import AuditHealth
from shared.runtime.clock import now_ms
from shared.runtime.health import Health, Pulse
from shared.runtime.kafka.only_writer import OvertakenError
from shared.runtime.kafka.reader import open_reader
from shared.runtime.setup_error import KafkaUnavailableError, SetupError
from shared.runtime.spark.cluster import SparkCluster
from shared.runtime.spark.session import SparkSettings, require_running, running_spark

log = structlog.get_logger()

# Spark answers in milliseconds, and within seconds while all cores are busy.
_SPARK_LOOK_S, _SPARK_WITHIN_S = 5.0, 60.0
# A large memory is not saved every minute; a restart reads the records since the last save again.
_SAVED_BYTES_PER_S = 1_000_000
# A run spends its time on planning, not on rows: two plans for a few thousand rows
# (docs/tuning.md). One process does many runs.
_SESSION = {
    # Read Kafka with Spark's newer interface: the older one plans twice and copies each row twice.
    "spark.sql.sources.useV1SourceList": "",
    # The context helps people who write queries, and costs a stack walk for each column.
    "spark.sql.dataFrameQueryContext.enabled": "false",
    # Each run reads with its own consumer group, so consumers of the last run are useless. By
    # default Spark keeps them and their fetched data for 5 minutes: 60 MB of heap in 30 quick runs.
    "spark.kafka.consumer.cache.timeout": "10s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "10s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "10s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "10s",
}


@dataclass(frozen=True, slots=True)
class Auditor:
    """Audits until it is cancelled."""

    _settings: ObserveSettings
    # The audit's status, which the sampler shows.
    _status: AuditStatus
    _configuration: Callable[[], Configuration]
    _health: Health
    # Gets the events that only the log names.
    _hear: Hear = nobody_hears

    async def run(self) -> None:
        with suppress(KafkaUnavailableError):
            async with open_reader(self._settings.bootstrap_servers) as reader:
                memory = Memory.from_bytes(await saved_memory(reader))
            # Show minutes that were already overdue before this start.
            self._status.overdue = memory.books.overdue
        # At the start of Hifi, services that carry events go first; a takeover starts at once.
        rest_s = self._settings.audit_interval_s - (now_ms() - self._status.started_ms) / 1000
        await asyncio.sleep(max(0.0, rest_s))
        resources = ExitStack()
        starting = self._start(resources)
        watching: asyncio.Task[None] | None = None
        try:
            while (spark := await self._started(starting)) is None:
                starting = self._start(resources)
            watching = asyncio.create_task(self._watch(spark))
            while not watching.done():
                try:
                    await self._audit(spark)
                except (
                    KafkaUnavailableError, OvertakenError, OSError, PySparkException
                ) as error:  # fmt: skip
                    log.warning("audit.failed", error=str(error).split("\n", 1)[0][:300])
                    self._status.failed(f"the audit's last run failed: {type(error).__name__}")
                    await asyncio.sleep(self._settings.audit_interval_s)
            watching.result()
        finally:
            # Also wait for a starting session: a process has only one, and the lease may come back.
            await asyncio.wait([starting])
            if watching is not None:
                watching.cancel()
            await asyncio.to_thread(resources.close)

    def _start(self, resources: ExitStack) -> asyncio.Task[SparkSession]:
        return asyncio.create_task(
            asyncio.to_thread(lambda: resources.enter_context(self._spark()))
        )

    async def _started(self, starting: asyncio.Task[SparkSession]) -> SparkSession | None:
        """Return the session; None, after a pause, if a cluster has no room for it now."""
        try:
            return await asyncio.shield(starting)
        except (SetupError, Py4JError, PySparkException) as error:
            # With a cluster, even Java errors may only mean that the master does not answer.
            if self._settings.spark_master == "local":
                raise
            why = str(error).split("\n", 1)[0][:300]
            log.warning("audit.failed", error=why)
            self._status.failed(why)
            await asyncio.sleep(self._settings.audit_interval_s)
            return None

    async def _watch(self, spark: SparkSession) -> None:
        """Check on Spark during the runs, as a run may take long; raise once Spark has ended."""
        pulse = Pulse()
        self._health.must_turn("the audit's Spark", pulse, within_s=_SPARK_WITHIN_S)
        try:
            while True:
                await asyncio.to_thread(require_running, spark)
                pulse.beat()
                await asyncio.sleep(_SPARK_LOOK_S)
        finally:
            # Another observer may have the lease from now on.
            self._health.may_rest(pulse)

    def _spark(self) -> AbstractContextManager[SparkSession]:
        settings = self._settings
        folder = settings.folder.absolute() / "spark"
        return audit_spark(
            folder, settings.jars_cache, heap_mb=settings.heap_mb, cluster=settings.cluster
        )

    async def _audit(self, spark: SparkSession) -> None:
        """Run the audit repeatedly until an error; the caller then sets everything up again."""
        settings = self._settings
        rules = Rules(
            check_after_ms=round(settings.check_after_s * 1000),
            overdue_ms=round(settings.overdue_after_s * 1000),
        )
        async with audit_kafka(settings.bootstrap_servers) as kafka:
            memory = Memory.from_bytes(await kafka.saved_memory())
            audit = Audit(
                job=AuditReads(spark, settings.bootstrap_servers),
                kafka=kafka,
                memory=memory,
                signer=Signer(settings.folder, key=settings.signing_key),
                publish=kafka.publish_statements,
                rules=rules,
                now_ms=now_ms,
                hear=self._hear,
            )
            save_at_s = 0.0
            while True:
                began_ms = now_ms()
                async for offset, signed in kafka.statements(memory.statements_read):
                    memory.read_statement(signed, offset)
                destinations, late, derived = self._destinations()
                archived = self._archived(destinations)
                outcome = await audit.run(
                    destinations, late=late, derived=derived, archived=archived
                )
                await kafka.publish_minutes(outcome.changed)
                if monotonic() >= save_at_s:
                    saved = await asyncio.to_thread(memory.to_bytes)
                    await kafka.save_memory(saved)
                    save_at_s = monotonic() + len(saved) / _SAVED_BYTES_PER_S
                self._tell(outcome, memory, began_ms)
                if outcome.is_behind:
                    continue
                took_s = (now_ms() - began_ms) / 1000
                await asyncio.sleep(max(0.0, settings.audit_interval_s - took_s))

    def _destinations(
        self,
    ) -> tuple[Mapping[str, Sequence[str]], frozenset[str], frozenset[str]]:
        """Return the destinations and pipelines of each stream, by topic, with removed streams.

        Also return those that began later than their stream, and the topics that pipelines write
        to. Removed streams are included as statements still cover their acknowledged events.
        """
        configuration = self._configuration()
        destinations = {
            stream_topic(stream): configuration.readers_of(stream)
            for stream in configuration.past_streams
        }
        ids = (each for ids in destinations.values() for each in ids)
        late = frozenset(each for each in ids if configuration.starts_late(each))
        return destinations, late, frozenset(map(stream_topic, configuration.derived_streams))

    def _archived(self, destinations: Mapping[str, Sequence[str]]) -> frozenset[str]:
        """Return the destinations that may read events that Kafka no longer has."""
        reads = self._configuration().reads_archives
        return frozenset(each for ids in destinations.values() for each in ids if reads(each))

    def _tell(self, outcome: AuditOutcome, memory: Memory, began_ms: int) -> None:
        ended_ms = now_ms()
        self._status.overdue = memory.books.overdue
        self._status.minutes = outcome.minutes
        self._status.health = AuditHealth(
            last_run_ms=ended_ms,
            last_run_took_s=(ended_ms - began_ms) / 1000,
            problem=outcome.problem or memory.unreadable_in_words(),
            unreadable_count=sum(count for _, _, count in memory.unreadable),
        )


def audit_spark(
    folder: Path, cache: Path | None, *, heap_mb: int, cluster: SparkCluster | None = None
) -> AbstractContextManager[SparkSession]:
    """Open the audit's only session, which lives as long as the process."""
    return running_spark(
        SparkSettings(
            name="hifi-audit",
            service="observe",
            folder=folder,
            cache=cache,
            task_places=TASK_PLACES,
            heap_mb=heap_mb,
            worker_daemon="observe.worker_daemon",
            cluster=cluster,
            more=_SESSION,
        )
    )
