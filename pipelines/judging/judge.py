"""Judges a whole document: its schema, each expression, their types, and its tests' results.

The engine judges a pipeline before it runs it, and `hifi pipelines check` on demand; both show the
same messages.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    MapType,
    NumericType,
    StructType,
    TimestampType,
)

from pipelines.functions.faults import fault_of_a_function
from pipelines.functions.granted import check_granted, reads_of, signature_of
from pipelines.functions.installed import NoFunctionError
from pipelines.judging.expressions import ExpressionError, Scope, check_growth, judged
from pipelines.judging.growth import Growth, element, of_member, retyped, together
from pipelines.judging.objects import of_event
from pipelines.judging.patterns import PatternBudget
from pipelines.judging.probes import probes_of
from pipelines.judging.trees import Branch, TreeError, check_nesting, node_of
from pipelines.judging.trial import PreviewRow, came_of, differences, given_records, given_tables
from pipelines.members import columns_of as columns_of_row
from pipelines.members import first_line, members_of, wrong_type
from pipelines.parts.blame import is_fault_of_others
from pipelines.parts.bounded import TookTooLongError, bounded
from pipelines.parts.heap import TypeOf, type_of
from pipelines.plan import RECORDS, after, columns_of, opened
from pipelines.windows.partials import events_of, parts_of
from shared.config.model import ConfigError
from shared.config.outside.call import Call
from shared.config.pipeline import (
    Enrich,
    Explode,
    Key,
    LookedUp,
    Pipeline,
    Select,
    Step,
    ToDead,
    Where,
)
from shared.config.steps.computed import ComputedColumn, computed, reducers_of
from shared.config.steps.expression import FACTS
from shared.config.steps.window import WINDOW_END, WINDOW_START, Dedupe, WindowOf, WindowStep
from shared.event.record import RecordIn
from shared.runtime.setup_error import OperatorError

# The name by which functions read the bytes of an event.
_VALUE = "value"


class Refusal(NamedTuple):
    """Why a pipeline cannot be run, and the place in its document, as a JSON pointer."""

    why: str
    pointer: str


class UnfitError(Exception):
    """A pipeline cannot be run."""

    def __init__(self, why: str, *path: str | int) -> None:
        super().__init__(why)
        self.refusal = Refusal(why, "".join(f"/{part}" for part in path))


class NotTriedError(OperatorError):
    """Nobody could find out whether a pipeline can be run; trying again may help."""


@dataclass(frozen=True, slots=True)
class TypedStep:
    """A step, and the members that an event has after it."""

    step: Step
    members: tuple[tuple[str, str], ...]


def judge(
    session: SparkSession,
    pipeline: Pipeline,
    functions: Collection[str] = (),
    try_s_max: float = 120,
) -> Refusal | None:
    """Say why a pipeline that may call these functions cannot be run; None if it can."""
    try:
        typed(session, pipeline, functions)
        with bounded(session.sparkContext, pipeline.name, try_s_max):
            tried(session, pipeline)
    except UnfitError as refused:
        return refused.refusal
    except RecursionError:
        # The document is at fault, not the machine: another attempt would fail the same way.
        return Refusal("it is nested too deeply to be read", "/steps")
    except TookTooLongError as error:
        return Refusal(f"in a run with its tests and with odd events: {error}", "/steps")
    return None


def typed(
    session: SparkSession, pipeline: Pipeline, functions: Collection[str] = ()
) -> list[TypedStep]:
    """Return each step with its members; UnfitError if one cannot be run. Runs no events."""
    try:
        members = members_of(pipeline.schema) if pipeline.schema else StructType()
    except ConfigError as error:
        raise UnfitError(error.wrong, "schema") from None
    rows = opened(pipeline, session.createDataFrame([], RECORDS))
    look_ups = given_tables(pipeline).look_ups
    scope = of_event(rows.schema, members)
    steps, budget = [], PatternBudget()
    for index, step in enumerate(pipeline.steps):
        scope = _StepScope(session, rows, scope, budget, functions).after(step, index)
        rows = after(step, rows, look_ups)
        kinds = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
        steps.append(TypedStep(step, tuple((name, kinds[name]) for name in columns_of(rows))))
    _check_key(pipeline)
    step_scope = _StepScope(session, rows, scope, budget)
    for index, output in enumerate(pipeline.to):
        if output.when is not None:
            step_scope.condition(output.when, "to", index, "when")
    if pipeline.window is not None:
        kinds = _window_kinds(session, pipeline)
        steps[-1] = TypedStep(pipeline.steps[-1], tuple(kinds.items()))
    return steps


def _check_key(pipeline: Pipeline) -> None:
    """Check that the key columns of a database row are written."""
    table = pipeline.to_database
    for index, name in enumerate(table.key if table else ()):
        if name not in (columns := columns_of_row(pipeline)):
            there = ", ".join(columns)
            wrong = f"there is no column {name!r} among the written columns: {there}"
            raise UnfitError(wrong, "to", 0, "database", "key", index)


def _window_kinds(session: SparkSession, pipeline: Pipeline) -> dict[str, str]:
    """The members of its windows' rows; raise UnfitError if Spark cannot make them."""
    assert pipeline.window is not None, "the pipeline has a window"
    try:
        events = events_of(
            pipeline,
            session.createDataFrame([], RECORDS),
            frontier_ms=0,
            look_ups=given_tables(pipeline).look_ups,
        )
        parts_of(pipeline, events).schema  # noqa: B018 - makes Spark check all of it
    except PySparkException as error:
        at = len(pipeline.steps) - 1
        raise UnfitError(first_line(error), "steps", at, "window") from None
    kinds = {field.name: field.dataType.simpleString() for field in events.schema.fields}
    return {
        **{name: kinds[name] for name in pipeline.window.by},
        **dict.fromkeys((WINDOW_START, WINDOW_END), "timestamp"),
        **{name: computed(text).aggregate for name, text in pipeline.window.compute.items()},
    }


def tried(session: SparkSession, pipeline: Pipeline) -> None:
    """Run the document's tests, and odd events; raise UnfitError if they fail.

    Raise NotTriedError if Spark or the machine fails, as that is not the document's fault.
    """
    groups = [
        given_records(pipeline, test, partition) for partition, test in enumerate(pipeline.tests)
    ]
    probes = probes_of(pipeline, partition=len(groups))
    # Each test begins without the kept state of the others.
    runs = (
        [[*groups, probes]] if not pipeline.kept_shape else [[each] for each in [*groups, probes]]
    )
    came: list[list[PreviewRow]] = []
    try:
        for run in runs:
            rows = came_of(session, pipeline, [record for group in run for record in group])
            came += [rows] if pipeline.kept_shape else _by_group(rows, len(run))
    except (PySparkException, Py4JJavaError) as error:
        if is_fault_of_others(str(error)):
            raise NotTriedError(f"Spark could not try it: {first_line(error)}.") from error
        raise _failed(
            session, pipeline, [*probes, *(r for g in groups for r in g)], error
        ) from None
    for index, test in enumerate(pipeline.tests):
        if lines := differences(pipeline, test, came[index]):
            raise UnfitError("\n".join(["results are not as expected:", *lines]), "tests", index)


def _by_group(came: Sequence[PreviewRow], count: int) -> list[list[PreviewRow]]:
    return [
        [row for row in came if row.origin.partition == partition] for partition in range(count)
    ]


def _failed(
    session: SparkSession, pipeline: Pipeline, records: Sequence[RecordIn], error: Exception
) -> UnfitError:
    """Return an error that names the step that throws."""
    if (why := fault_of_a_function(str(error))) is not None:
        for number, step in enumerate(pipeline.steps):
            if isinstance(step, Call) and why.startswith(f"{step.call}:"):
                return UnfitError(f"it fails on an event: {why}", "steps", number, step.member)
        compute = pipeline.window.compute if pipeline.window else {}
        for name, reducer in reducers_of(compute).items():
            if why.startswith(f"{reducer}:"):
                at = ("steps", len(pipeline.steps) - 1, "window", "compute", name)
                return UnfitError(f"it fails on an event: {why}", *at)
    for number, _ in enumerate(pipeline.steps, start=1):
        is_whole = number == len(pipeline.steps) and pipeline.window is not None
        to = pipeline.to if is_whole else (ToDead(True),)
        part = replace(pipeline, steps=pipeline.steps[:number], to=to, match=None, tests=())
        try:
            came_of(session, part, records)
        except (PySparkException, Py4JJavaError) as first:
            return UnfitError(f"it fails on an event: {_said(first)}", "steps", number - 1)
    return UnfitError(f"it fails on an event: {_said(error)}", "to")


@dataclass(frozen=True, slots=True)
class _StepScope:
    """The state of an event between two steps."""

    session: SparkSession
    rows: DataFrame
    scope: dict[str, Growth]
    budget: PatternBudget
    # The functions that its steps may call.
    functions: Collection[str] = ()

    def after(self, step: Step, nth: int) -> dict[str, Growth]:
        """Return the names that exist after the step; raise UnfitError if it cannot be run."""
        at = ("steps", nth, step.member)
        match step:
            case Where():
                self.condition(step.where, *at)
            case Key():
                self._value(step.key, *at)
            case Call():
                return self.scope | self._called(step.call, *at)
            case Select():
                made = {name: self._member(text, *at, name) for name, text in step.select.items()}
                self._check_growth(made.values(), *at)
                return {**made, FACTS: self.scope[FACTS]}
            case Explode():
                ((name, text),) = step.explode.items()
                kind, growth = self._judged(text, *at, name)
                if not isinstance(kind, ArrayType):
                    raise UnfitError(f"it is {_named(kind)}, not a list", *at, name)
                self._check_type(kind, *at, name)
                return self.scope | {name: element(growth)}
            case Enrich():
                return self.scope | self._looked_up(step.enrich, *at)
            case Dedupe():
                self._value(step.dedupe.key, *at, "key")
            case WindowStep():
                self._window(step.window, *at)
        return self.scope

    def _value(self, text: str, *at: str | int) -> None:
        kind, _ = self._judged(text, *at)
        if isinstance(kind, ArrayType | MapType | StructType):
            raise UnfitError(f"it is {_named(kind)}, but a key is a single value", *at)

    def _looked_up(self, asked: LookedUp, *at: str | int) -> dict[str, Growth]:
        self._value(asked.key, *at, "key")
        try:
            members = members_of(asked.schema)
        except ConfigError as error:
            raise UnfitError(error.wrong, *at, "schema") from None
        return {asked.into: of_member(type_of(members, members), asked.into)}

    def _called(self, name: str, *at: str | int) -> dict[str, Growth]:
        """The members that a function adds; their size is the operator's responsibility."""
        reads, returns = self._installed(signature_of, name, *at)
        self._check_reads(reads, *at)
        return {made.name: of_member(TypeOf(made.dataType), made.name) for made in returns}

    def _installed(self, find: Callable[[str], Any], name: str, *at: str | int) -> Any:
        try:
            check_granted(name, self.functions)
            return find(name)
        except NoFunctionError as error:
            raise UnfitError(str(error), *at) from None

    def _check_reads(self, reads: StructType, *at: str | int) -> None:
        here = {field.name: field.dataType for field in self.rows.schema.fields}
        for field in reads.fields:
            kind = here.get(field.name, BinaryType() if field.name == _VALUE else None)
            if kind is None:
                raise UnfitError(f"it reads {field.name!r}, which the event does not have", *at)
            if kind != field.dataType:
                wanted = f"{_named(field.dataType)}, but it is {_named(kind)}"
                raise UnfitError(f"it reads {field.name!r} as {wanted}: CAST it before", *at)

    def _window(self, window: WindowOf, *at: str | int) -> None:
        fields = {field.name: field.dataType for field in self.rows.schema.fields}
        for index, name in enumerate(window.by):
            if name not in self.scope or name == FACTS:
                there = ", ".join(each for each in self.scope if each != FACTS)
                wrong = f"there is no column {name!r} here; there are: {there}"
                raise UnfitError(wrong, *at, "by", index)
            if isinstance(fields[name], ArrayType | MapType | StructType):
                wrong = f"{name} is {_named(fields[name])}, but a key is a single value"
                raise UnfitError(wrong, *at, "by", index)
        if window.time is not None:
            kind, _ = self._judged(window.time, *at, "time")
            if not isinstance(kind, TimestampType):
                raise UnfitError(f"it is {_named(kind)}, but a time is a TIMESTAMP", *at, "time")
        kept: list[Growth] = []
        for name, text in window.compute.items():
            where = (*at, "compute", name)
            try:
                what = computed(text)
            except ConfigError as error:
                raise UnfitError(error.wrong, *where) from None
            if what.function:
                self._check_reads(self._installed(reads_of, what.function, *where), *where)
            elif what.of:
                kept.append(self._aggregate(what, *where))
        self._check_growth(kept, *at, "compute")

    def _aggregate(self, what: ComputedColumn, *at: str | int) -> Growth:
        """Check that the type suits the aggregate, which adds, compares or writes its values."""
        kind, growth = self._judged(what.of, *at)
        named = f"{what.aggregate}({what.of}) is of {_named(kind)}"
        match what.aggregate:
            case "sum" | "avg" if not isinstance(kind, NumericType):
                raise UnfitError(f"{named}, but must be of a number", *at)
            case "count_if" if not isinstance(kind, BooleanType):
                raise UnfitError(f"{named}, but must be of true or false", *at)
            case "min" | "max" if isinstance(kind, ArrayType | MapType | StructType | BinaryType):
                raise UnfitError(f"{named}, but must be of a single value", *at)
            case _ if what.aggregate != "count":
                self._check_type(kind, *at)
            case _:
                pass
        return growth

    def condition(self, text: str, *at: str | int) -> None:
        kind, _ = self._judged(text, *at)
        if not isinstance(kind, BooleanType):
            raise UnfitError(f"it is {_named(kind)}, but must be true or false", *at)

    def _member(self, text: str, *at: str | int) -> Growth:
        kind, growth = self._judged(text, *at)
        self._check_type(kind, *at)
        return growth

    def _judged(self, text: str, *at: str | int) -> tuple[DataType, Growth]:
        try:
            growth = judged(self._tree(text), text, Scope(self.scope), self.budget)
            kind = self.rows.select(F.expr(text).alias("it")).schema["it"].dataType
        except (ExpressionError, TreeError, PySparkException) as error:
            raise UnfitError(first_line(error), *at) from None
        return kind, retyped(growth, TypeOf(kind, is_read=False))

    def _tree(self, text: str) -> Branch:
        check_nesting(text)
        parser = self.session._jsparkSession.sessionState().sqlParser()  # noqa: SLF001 - no other way
        try:
            return node_of(parser.parseExpression(text))
        except Py4JJavaError:
            # The parser's stack is not deep enough.
            raise ExpressionError("it is nested too deeply") from None

    @staticmethod
    def _check_type(kind: DataType, *at: str | int) -> None:
        if (wrong := wrong_type(kind)) is not None:
            raise UnfitError(f"{wrong}: CAST it to another type", *at)

    @staticmethod
    def _check_growth(growths: Iterable[Growth], *at: str | int) -> None:
        try:
            check_growth(together(growths))
        except ExpressionError as error:
            raise UnfitError(f"all members together: {error}", *at) from None


def _said(error: Exception) -> str:
    return fault_of_a_function(str(error)) or first_line(error)


def _named(kind: DataType) -> str:
    return kind.simpleString()[:200]
