"""Runs a Python function on Spark in many small jobs a second, each at half of Spark's own cost.

PySpark makes new RDDs for every job, and looks up each class by name. Here the RDDs for a worker
are made once, and the inputs of tasks are sent as a property of their job.
"""

import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

from pyspark import RDD, SparkContext, TaskContext
from pyspark.serializers import CPickleSerializer
from pyspark.util import _load_from_socket

Found = TypeVar("Found")

# Because of this name, Spark hides the property when it shows properties of jobs.
_TASKS = "hifi.secret.tasks"
_BETWEEN = " "
_POOL = "spark.scheduler.pool"


class _Template(NamedTuple):
    """The template of jobs with the same number of tasks."""

    rdd: RDD[Any]
    # The numbers of a job's tasks, as a list in the JVM.
    numbers: Any


@dataclass
class TaskJobs(Generic[Found]):
    """The jobs of one function; any number of threads may run some."""

    context: SparkContext
    # It gets the inputs of one task. It is sent to the workers, so it must include all it needs.
    function: Callable[[Iterable[Any]], Iterable[Found]]
    _templates: dict[tuple[str, str | None, int], _Template] = field(default_factory=dict)
    # The executors at the last request for one.
    _present: list[str] = field(default_factory=list)
    # A worker's environment is that of the context when its RDD is made.
    _making: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        jvm = self.context._jvm  # noqa: SLF001 - as of Spark's own runJob
        assert jvm is not None, "a context that runs has its JVM"
        self._jvm, self._spark = jvm, self.context._jsc.sc()  # noqa: SLF001 - the same
        # Kept, because each look-up of this name asks the JVM for classes that do not exist.
        self._runs = jvm.PythonRDD

    def run(
        self,
        tasks: Sequence[object],
        *,
        pool: str,
        environment: Mapping[str, str] | None = None,
        place: int | None = None,
    ) -> list[Found]:
        """Run a job; return the results of all tasks when the last one has ended.

        Spark has separate worker processes for each environment. Jobs with the same place go to the
        same executor while the executors stay the same and have free places.
        """
        near = None if place is None else self._executor(place)
        template = self._template(environment or {}, near, len(tasks))
        packed = (b64encode(pickle.dumps(task)).decode() for task in tasks)
        self.context.setLocalProperty(_TASKS, _BETWEEN.join(packed))
        self.context.setLocalProperty(_POOL, pool)
        rdd = template.rdd
        answers = self._runs.runJob(self._spark, rdd._jrdd, template.numbers)  # noqa: SLF001 - as above
        with _load_from_socket(answers, rdd._jrdd_deserializer) as results:  # noqa: SLF001 - as above
            return list(results)

    def cancel_all(self) -> None:
        self.context.cancelAllJobs()

    def _executor(self, place: int) -> str | None:
        present = self._spark.schedulerBackend().getExecutorIds().mkString(" ").split()
        self.keep_for(present)
        return sorted(present, key=int)[place % len(present)] if present else None

    def keep_for(self, executors: Sequence[str]) -> None:
        """Forget templates of executors that are gone: their names are never used again."""
        with self._making:
            if executors != self._present:
                self._present = list(executors)
                gone = {key for key in self._templates if key[1] not in {None, *executors}}
                for key in gone:
                    del self._templates[key]

    def _template(
        self, environment: Mapping[str, str], near: str | None, task_count: int
    ) -> _Template:
        key = repr(sorted(environment.items())), near, task_count
        with self._making:
            if key not in self._templates:
                self.context.environment.update(environment)
                rdd = self._numbers(near, task_count).mapPartitions(partial(_run, self.function))
                rdd._jrdd  # noqa: B018, SLF001 - made here, with this environment
                numbers = self._jvm.java.util.ArrayList()
                for number in range(task_count):
                    numbers.add(number)
                self._templates[key] = _Template(rdd, numbers)
            return self._templates[key]

    def _numbers(self, near: str | None, task_count: int) -> RDD[int]:
        """Make an RDD of this many tasks, each of which gets its number."""
        if near is None:
            return self.context.parallelize(list(range(task_count)), task_count)
        as_scala = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala
        places, placed = self._jvm.java.util.ArrayList(), self._jvm.java.util.ArrayList()
        # Spark takes the executor's number from this text, and ignores the host.
        places.add(f"executor_any_{near}")
        for number in range(task_count):
            one = bytearray(pickle.dumps(number))
            placed.add(self._jvm.scala.Tuple2(one, as_scala(places).toList()))
        of_bytes = getattr(getattr(self._jvm.scala.reflect, "ClassTag$"), "MODULE$").Byte().wrap()
        made = self._spark.makeRDD(as_scala(placed).toList(), of_bytes)
        return RDD(made.toJavaRDD(), self.context, CPickleSerializer())


def _run(
    function: Callable[[Iterable[Any]], Iterable[Found]], numbers: Iterable[int]
) -> Iterator[Found]:
    """Run tasks in the worker."""
    context = TaskContext.get()
    assert context is not None, "Spark runs it"
    packed = (context.getLocalProperty(_TASKS) or "").split(_BETWEEN)
    # Read everything: a worker that leaves something unread is not used again.
    yield from function([pickle.loads(b64decode(packed[number])) for number in list(numbers)])  # noqa: S301 - ours
