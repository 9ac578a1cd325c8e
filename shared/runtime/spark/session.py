"""Runs all our Spark sessions: their jars, logs, places, task retries and memory.

Spark does not fetch the jars: they come from the lock file and are checked.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyspark
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.functions import vectorized_udf  # type: ignore[attr-defined]
from pyspark.util import PythonEvalType

from shared.runtime.java.cache_folder import default_cache
from shared.runtime.java.class_archive import ClassArchive
from shared.runtime.java.home_for_spark import home_for_spark
from shared.runtime.java.jars import ensure_jars
from shared.runtime.java.java import Java, find_java
from shared.runtime.java.small_heap import YOUNG_MB, small_heap
from shared.runtime.kafka.settings import JAAS_VARIABLE, kafka_access
from shared.runtime.logs import is_for_people
from shared.runtime.machine.machine_size import core_count
from shared.runtime.setup_error import OperatorError
from shared.runtime.spark.cluster import SparkCluster
from shared.runtime.spark.memory_watch import ExecutorWatch
from shared.runtime.spark.own_executor import own_cluster

ArrowColumn: TypeAlias = Callable[[Any, Any], Any]
ArrowFunction: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class SparkEndedError(OperatorError):
    """The session of a process has ended; only a new process can make a new one."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The differences between our sessions; everything else is the same for all."""

    name: str
    # The daemon from which Python workers fork; Spark's own daemon has not loaded our modules.
    worker_daemon: str
    # Scratch space; safe to delete while no session runs.
    folder: Path
    # The folder of jars and class archives; None means the cache that all Hifi commands share.
    cache: Path | None = None
    # The name of the process in its log, of which the lines of the JVM are a part.
    service: str = "spark"
    # One for each Kafka partition that is processed at the same time. Tasks wait for HTTP, not for
    # the processor, so there may be more places than cores.
    task_places: int = 32
    heap_mb: int = 1024
    # The heap of a JVM for tasks beside the driver; with 0, the driver's JVM runs the tasks.
    executor_mb: int = 0
    # Watches that executor.
    watch: ExecutorWatch = field(default_factory=ExecutorWatch, compare=False)
    # One process of a machine is enough to write the archive that speeds up the next starts.
    makes_class_archive: bool = False
    # Whether the JVM, and not Python, processes each event: then its optimizing compiler is worth
    # its cost.
    has_rows_in_jvm: bool = False
    # The cluster that runs the tasks; None means this machine.
    cluster: SparkCluster | None = None
    # Options of one kind of session; they override the common ones.
    more: Mapping[str, str] = field(default_factory=dict)


# A JVM that writes its class archive takes 8 s to end on two cores, and 20 s on busy ones. If it
# were killed earlier, each start would try again. Any other JVM takes 1 s.
_JVM_END_TIMEOUT_S = 45.0
# With this many cores or fewer, the optimizing compiler takes them from the work that it should
# speed up (docs/tuning.md).
_SMALL_MACHINE_CORES = 4
_ARROW_PART = 4
# About the size of a driver's permanent data.
_KEPT_MB = 80
# Reading an event's JSON makes 8 kB of garbage, and each collection stops everything for 5 ms,
# whatever the size of the young part.
_YOUNG_OF_ROWS_MB = 256
# Only the quick compiler, and the collector without separate threads.
_QUICK_COMPILER, _SERIAL_COLLECTOR = "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"
_ENDS = "-XX:+ExitOnOutOfMemoryError"
_SPARKS_JARS = Path(pyspark.__file__).parent / "jars"


@contextmanager
def running_spark(settings: SparkSettings) -> Iterator[SparkSession]:
    """Run the session of this process during the block."""
    settings.folder.mkdir(parents=True, exist_ok=True)
    cache = settings.cache or default_cache()
    access = kafka_access()
    jars = _class_path_of(*(ensure_jars(each, cache=cache) for each in access.spark_jar_sets))
    java = find_java()
    archive = class_archive(java, jars, cache=cache, folder=settings.folder)
    # The workers must use the interpreter with our packages, whatever PATH says.
    os.environ["PYSPARK_PYTHON"] = settings.cluster.python if settings.cluster else sys.executable
    # Spark derives its address from the host name otherwise, which need not resolve.
    own_address = settings.cluster.driver_host if settings.cluster else "127.0.0.1"
    os.environ["SPARK_LOCAL_IP"] = own_address
    if access.is_named:
        # Spark's Kafka clients read it there: an option would appear in plans and messages.
        os.environ[JAAS_VARIABLE] = access.jaas
    kafka_options = access.java_options
    jvm_options = [*archive.options(may_make=settings.makes_class_archive), *kafka_options]
    # An executor has the same classes: with the archive its first job ends a second sooner.
    executor_options = [*archive.options(may_make=False), *kafka_options]
    options = _options(settings, jars, jvm_options, executor_options)
    if settings.cluster is not None and kafka_options:
        options |= {"spark.executor.extraJavaOptions": " ".join(kafka_options)}
    with _java_home(home_for_spark(java, folder=settings.folder)):
        # Everybody on this machine can read the JVM's command line, so secrets come later.
        starting = pyspark.SparkConf().setAll([*options.items()])
        pyspark.SparkContext._ensure_initialized(conf=starting)  # noqa: SLF001 - as said
        options |= _told_later(settings)
        session = SparkSession.builder.appName(settings.name).config(map=options).getOrCreate()
    try:
        session.sparkContext.setLogLevel("WARN")
        _keep_no_history(session)
        if settings.cluster is not None:
            settings.cluster.equip(session.sparkContext, settings.folder)
        watched = settings.watch.watching(_driver_pid(session))
        with watched if settings.executor_mb else nullcontext():
            yield session
    finally:
        if _stop(session):
            archive.publish()


def _told_later(settings: SparkSettings) -> Mapping[str, str]:
    """Return the options that the session gets when its JVM runs."""
    if settings.cluster is not None:
        settings.cluster.check_lock(pyspark.SparkConf())
        return settings.cluster.secrets
    if not settings.executor_mb:
        return {}
    return own_cluster(
        pyspark.SparkContext._gateway,  # noqa: SLF001 - nothing else reaches it
        folder=settings.folder,
        task_places=settings.task_places,
        heap_mb=settings.executor_mb,
    )


@contextmanager
def _java_home(home: Path) -> Iterator[None]:
    """Set JAVA_HOME during the block, so that Spark's launcher uses this Java."""
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["JAVA_HOME"]
        if before is not None:
            os.environ["JAVA_HOME"] = before


def class_archive(java: Java, jars: Sequence[Path], *, cache: Path, folder: Path) -> ClassArchive:
    """Return the archive that all our sessions share; a new one's draft is in `folder`."""
    all_jars = dict.fromkeys([*jars, *sorted(_SPARKS_JARS.glob("*.jar"))])
    draft = folder / "classes.jsa"
    return ClassArchive("spark", cache=cache, java=java, jars=list(all_jars), draft=draft)


def _class_path_of(ours: Sequence[Path], *others: Sequence[Path]) -> list[Path]:
    """Return our jars, and those that come after Spark's: Amazon's contains an older Netty."""
    later = [jar for jars in others for jar in jars]
    return [*ours, *sorted(_SPARKS_JARS.glob("*.jar")), *later] if later else [*ours]


def _keep_no_history(session: SparkSession) -> None:
    """Make Spark forget finished jobs, whose data it keeps for pages that we do not have.

    Keeping them takes a tenth of the JVM's time for a small job (ADR 0093).
    """
    spark = session.sparkContext._jsc.sc()  # noqa: SLF001 - Spark has no setting for it
    spark.listenerBus().removeListener(spark.statusStore().listener().get())


def require_running(session: SparkSession) -> None:
    """Raise SparkEndedError if the session has ended; hang while its JVM is frozen."""
    if session.sparkContext._jsc.sc().isStopped():  # noqa: SLF001 - nothing else tells
        raise SparkEndedError("Spark's session has ended: its own messages are above.")


def _driver_pid(session: SparkSession) -> int:
    gateway = session.sparkContext._gateway  # noqa: SLF001 - it has started the JVM
    pid: int = gateway.proc.pid  # type: ignore[union-attr]
    return pid


def _stop(session: SparkSession) -> bool:
    """Stop the session and its JVM; return True if the JVM ended normally, with its archive."""
    gateway = session.sparkContext._gateway  # noqa: SLF001 - pyspark lets go of the JVM otherwise
    assert gateway is not None, "a session that runs has its gateway"
    session.stop()
    gateway.shutdown()
    # Otherwise the next session of this process would use a JVM that is gone.
    pyspark.SparkContext._gateway = pyspark.SparkContext._jvm = None  # noqa: SLF001 - as above
    # The JVM of pyspark ends when its standard input does.
    gateway.proc.stdin.close()
    try:
        return bool(gateway.proc.wait(_JVM_END_TIMEOUT_S) == 0)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        return False


def _options(
    settings: SparkSettings,
    jars: Sequence[Path],
    jvm_options: Sequence[str],
    executor_options: Sequence[str] = (),
) -> dict[str, Any]:
    """Return all options that we set, with their reasons."""
    log_options = files("shared.runtime").joinpath("log4j2.properties")
    logged = [
        f"-Dlog4j2.configurationFile=file:{log_options}",
        f"-Dhifi.log={'text' if is_for_people() else 'json'}",
        f"-Dhifi.service={settings.service}",
    ]
    has_rows = settings.has_rows_in_jvm and not settings.executor_mb
    where = (
        settings.cluster.options(task_places=settings.task_places)
        if settings.cluster
        else _here(settings)
    )
    return {
        **where,
        "spark.driver.memory": f"{settings.heap_mb}m",
        "spark.driver.extraJavaOptions": " ".join(
            [
                *logged,
                # A broken driver is worse than none: its supervisor starts another one.
                _ENDS,
                *_small(settings.heap_mb, has_rows=has_rows),
                *jvm_options,
            ]
        ),
        **_class_path(settings, jars),
        "spark.local.dir": str(settings.folder / "scratch"),
        "spark.sql.warehouse.dir": str(settings.folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # One job must not wait behind another's tasks.
        "spark.scheduler.mode": "FAIR",
        # A speculative copy of a task would POST the same events a second time.
        "spark.speculation": "false",
        # A killed task must really end, or two tasks would send.
        "spark.task.reaper.enabled": "true",
        # Connection pools live in the workers.
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": settings.worker_daemon,
        # Over TCP, where Spark leaves Nagle's algorithm on, a small message may wait until the
        # previous one is acknowledged (docs/tuning.md).
        "spark.python.unix.domain.socket.enabled": "true",
        # Enough for 20 parallel requests of 500 events.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(_batch_bytes_max(settings)),
        # Otherwise each task generates the same few projections as Java source, only to find them
        # already compiled: half of a small task's work in the JVM (docs/tuning.md).
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Our plans are one stage without a shuffle: there is nothing to adapt.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        **_of_own_executor(settings, [*logged, *executor_options]),
        **settings.more,
    }


def _class_path(settings: SparkSettings, jars: Sequence[Path]) -> Mapping[str, str]:
    """Put our jars before Spark's own: jars fetched from the driver are in no class archive.

    An executor's first job takes 4 s with this, and 6 s without.
    """
    path = os.pathsep.join(map(str, jars))
    driver = {"spark.driver.extraClassPath": path}
    if settings.cluster is not None:
        fetched = [str(jar) for jar in jars if jar.parent != _SPARKS_JARS]
        return {**driver, "spark.jars": ",".join(fetched)}
    return {**driver, "spark.executor.extraClassPath": path}


def _of_own_executor(settings: SparkSettings, jvm_options: Sequence[str]) -> Mapping[str, str]:
    if not settings.executor_mb:
        return {}
    small = _small(settings.executor_mb, has_rows=settings.has_rows_in_jvm)
    return {
        "spark.executor.memory": f"{settings.executor_mb}m",
        "spark.executor.extraJavaOptions": " ".join([*jvm_options, _ENDS, *small]),
    }


def _small(heap_mb: int, *, has_rows: bool) -> Sequence[str]:
    """Return options for a JVM that shares few cores with others."""
    if core_count() > _SMALL_MACHINE_CORES:
        return ()
    young_mb = _YOUNG_OF_ROWS_MB if has_rows else YOUNG_MB
    return [
        _SERIAL_COLLECTOR,
        *small_heap(heap_mb, kept_mb=_KEPT_MB, young_mb=young_mb),
        *(() if has_rows else (_QUICK_COMPILER,)),
    ]


def _here(settings: SparkSettings) -> Mapping[str, str]:
    return {
        # Plain local mode never retries a task; with the 4 it tries four times, as on a cluster.
        "spark.master": f"local[{settings.task_places},4]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def _batch_bytes_max(settings: SparkSettings) -> int:
    """Return a task's limit of Arrow memory: with all places in use, a quarter of the heap's size.

    Arrow uses direct memory beside the heap, and a JVM may have as much of it as heap. Spark's
    default of 64 MiB, times 32 places, is twice that: large events on many lanes could crash it.
    """
    heap_mb = settings.executor_mb or settings.heap_mb
    return heap_mb * 1_048_576 // (_ARROW_PART * settings.task_places)


def arrow_column(function: ArrowColumn, kind: str) -> Callable[..., Column]:
    """Make a column of this type that Python computes from others, a batch at a time.

    It is computed once for each row, however many expressions use it.
    """

    # Spark decides by these type hints how to call it.
    def made(first: pa.Array, second: pa.Array) -> pa.Array:  # type: ignore[type-arg]
        column: pa.Array = function(first, second)  # type: ignore[type-arg]
        return column

    udf = vectorized_udf(made, kind, None, "arrow")
    once: Callable[..., Column] = udf.asNondeterministic()
    return once


def map_arrow(rows: DataFrame, function: ArrowFunction, schema: str) -> DataFrame:
    """Call `DataFrame.mapInArrow` without pandas, which it requires but never uses.

    The two steps are those of pyspark 4.2.0, to which we are pinned; ADR 0005 has the reasons.
    """
    udf = vectorized_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF, "pandas")
    column = udf(*[rows[name] for name in rows.columns])
    return DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)  # noqa: SLF001
