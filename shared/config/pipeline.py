"""Settings of a pipeline: the stream it reads, what its steps do, where the rest goes.

A document is data: its leaves are Spark SQL expressions, never statements, and it names streams
and nothing else. Here its shape is judged; processes with Spark judge its expressions. A process
that does not know a step, an output or a test refuses all of it: events would go elsewhere.
"""

import hashlib
import json
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field, Tag, model_validator
from pydantic.dataclasses import dataclass

from shared.config.access import DEFAULT_TENANT
from shared.config.destination import Start
from shared.config.model import CONFIG, ConfigError, ConfigObject, by_member, one_of
from shared.config.outside.call import Call
from shared.config.outside.database import DatabaseTable
from shared.config.pipeline_tests import PipelineTest
from shared.config.steps.checks import check_outputs, check_steps
from shared.config.steps.expression import NO_COLUMN, Columns, Expression, is_column
from shared.config.steps.window import Dedupe, Keeping, OnceOf, WindowOf, WindowStep, shape_of
from shared.config.values import Name, check
from shared.event.topics import TopicSpec, config_key, kept_spec, of_generation, pipeline_lane

# Enough for a wide table's columns, with their types.
SCHEMA_CHARS_MAX = 16_384
# Each step is a projection of the plan that Spark optimises for each job.
STEPS_MAX = 32
OUTPUTS_MAX = 16
TESTS_MAX = 32
# A document travels to every process through the config topic, under Kafka's limit for a record.
DOCUMENT_BYTES_MAX = 262_144

_PART = ConfigDict(**CONFIG, extra="forbid")

Match = Literal["first", "all"]


@dataclass(frozen=True, slots=True, config=_PART)
class Source:
    """The stream that it reads, and where a new pipeline begins in it."""

    stream: Name
    start: Start = "earliest"


@dataclass(frozen=True, slots=True, config=_PART)
class Where:
    """Keeps the events for which the expression is true; the others are filtered."""

    member: ClassVar[str] = "where"
    where: Expression


@dataclass(frozen=True, slots=True, config=_PART)
class Select:
    """Replaces the event by one of only these columns."""

    member: ClassVar[str] = "select"
    select: Columns


@dataclass(frozen=True, slots=True, config=_PART)
class Explode:
    """Makes an event of each element of a list; the element is a column of this name."""

    member: ClassVar[str] = "explode"
    explode: Annotated[Columns, Field(max_length=1)]


@dataclass(frozen=True, slots=True, config=_PART)
class Key:
    """Sets the ordering key of the events that are written."""

    member: ClassVar[str] = "key"
    key: Expression


@dataclass(
    frozen=True, slots=True, config=ConfigDict(**CONFIG, extra="forbid", validate_by_name=True)
)
class LookedUp:
    """The table and row that are looked up, and the part of the row that the event gets."""

    table: Name
    # The row's key.
    key: Expression
    # The members of a row that are read, as with events.
    schema: Annotated[str, Field(min_length=1, max_length=SCHEMA_CHARS_MAX)]
    # The column that has them.
    into: Annotated[str, Field(alias="as"), check(is_column, NO_COLUMN)]
    # An event whose row is not there has null, or is a dead letter.
    missing: Literal["keep", "dead"] = "keep"


@dataclass(frozen=True, slots=True, config=_PART)
class Enrich:
    """Adds what a table has for the event."""

    member: ClassVar[str] = "enrich"
    enrich: LookedUp


@dataclass(frozen=True, slots=True, config=_PART)
class ToStream:
    """Writes events to a stream if `when` is true of them; without it, all that get here."""

    member: ClassVar[str] = "stream"
    is_sink: ClassVar[bool] = False
    stream: Name
    when: Expression | None = None
    # It may close a cycle of streams: events come again, keep their ids, and are not taken twice.
    repost: bool = False
    # It gets the events that come too late for their window, as they came, and nothing else.
    late: bool = False


@dataclass(frozen=True, slots=True, config=_PART)
class ToTable:
    """Writes a row, under the event's key, of each event that `when` is true of."""

    member: ClassVar[str] = "table"
    is_sink: ClassVar[bool] = False
    table: Name
    when: Expression | None = None


@dataclass(frozen=True, slots=True, config=_PART)
class ToDead:
    """Puts the event into dead letters, and nowhere else."""

    member: ClassVar[str] = "dead"
    is_sink: ClassVar[bool] = False
    dead: Literal[True]
    when: Expression | None = None
    # As for streams.
    late: bool = False


@dataclass(frozen=True, slots=True, config=_PART)
class ToArchive:
    """Keeps the events that get here in a store that the operator has named."""

    member: ClassVar[str] = "archive"
    is_sink: ClassVar[bool] = True
    when: ClassVar[None] = None
    archive: Name


@dataclass(frozen=True, slots=True, config=_PART)
class ToDatabase:
    """Writes rows of a table, each event once; nothing else of the document goes anywhere."""

    member: ClassVar[str] = "database"
    is_sink: ClassVar[bool] = True
    database: DatabaseTable
    when: Expression | None = None


_STEPS = (Where, Select, Explode, Enrich, Key, Call, WindowStep, Dedupe)
_OUTPUTS = (ToStream, ToTable, ToDead, ToArchive, ToDatabase)

Step: TypeAlias = Annotated[
    Annotated[Where, Tag("[where]")]
    | Annotated[Select, Tag("[select]")]
    | Annotated[Explode, Tag("[explode]")]
    | Annotated[Enrich, Tag("[enrich]")]
    | Annotated[Key, Tag("[key]")]
    | Annotated[Call, Tag("[call]")]
    | Annotated[WindowStep, Tag("[window]")]
    | Annotated[Dedupe, Tag("[dedupe]")],
    by_member(*_STEPS),
    one_of("step", *_STEPS),
]
Output: TypeAlias = Annotated[
    Annotated[ToStream, Tag("[stream]")]
    | Annotated[ToTable, Tag("[table]")]
    | Annotated[ToDead, Tag("[dead]")]
    | Annotated[ToArchive, Tag("[archive]")]
    | Annotated[ToDatabase, Tag("[database]")],
    by_member(*_OUTPUTS),
    one_of("output", *_OUTPUTS),
]


@dataclass(frozen=True, slots=True, config=ConfigDict(**CONFIG, validate_by_name=True))
class Pipeline(ConfigObject):
    """The events of a stream, what becomes of them, and where they go."""

    name: Name
    source: Annotated[Source, Field(alias="from")]
    to: Annotated[tuple[Output, ...], Field(min_length=1, max_length=OUTPUTS_MAX)]
    # The members of an event that are read, as Spark writes columns: "id STRING, price DOUBLE".
    schema: Annotated[str, Field(max_length=SCHEMA_CHARS_MAX)] = ""
    steps: Annotated[tuple[Step, ...], Field(max_length=STEPS_MAX)] = ()
    # Whether an event goes to the first output that wants it, or to all of them.
    match: Match | None = None
    tests: Annotated[tuple[PipelineTest, ...], Field(max_length=TESTS_MAX)] = ()
    # The owner of the streams.
    tenant: Name = DEFAULT_TENANT
    # A pipeline that is rebuilt beside the old one, with ids of its own, has the next generation.
    generation: Annotated[int, Field(ge=1, le=1_000_000)] = 1

    @model_validator(mode="after")
    def _check_whole(self) -> "Pipeline":
        _check_size(self)
        check_steps(self.steps)
        _check_outputs(self)
        _check_tests(self)
        return self

    @property
    def starts_late(self) -> bool:
        """Whether it owes none of the events that were in the stream before it began."""
        return self.source.start != "earliest"

    @property
    def lane_id(self) -> str:
        """Its id at its stream, as a destination has one: at another stream it is another."""
        return pipeline_lane(self.source.stream, self.name, self.generation)

    @property
    def title(self) -> str:
        """The name that tells it from its other generations."""
        return of_generation(self.name, self.generation)

    @property
    def takes_first(self) -> bool:
        """Whether the first output that wants an event is the only one that gets it."""
        return self.match == "first"

    @property
    def explodes(self) -> bool:
        return any(isinstance(step, Explode) for step in self.steps)

    @property
    def rewrites(self) -> bool:
        """Whether events are rewritten; otherwise their bytes stay as they are."""
        return any(isinstance(step, Select | Explode | Enrich | WindowStep) for step in self.steps)

    @property
    def window(self) -> WindowOf | None:
        """The windows that it counts by, if it does."""
        return next((step.window for step in self.steps if isinstance(step, WindowStep)), None)

    @property
    def dedupe(self) -> OnceOf | None:
        return next((step.dedupe for step in self.steps if isinstance(step, Dedupe)), None)

    @property
    def kept_shape(self) -> str:
        """A hash of the way in which it keeps parts of events; empty if it keeps nothing."""
        return shape_of(next((step for step in self.steps if isinstance(step, Keeping)), None))

    @property
    def kept_spec(self) -> TopicSpec | None:
        """The topic with what it keeps; None if it keeps nothing."""
        return kept_spec(self.name, self.generation) if self.kept_shape else None

    @property
    def late_to(self) -> ToStream | ToDead | None:
        """Where late events go; without such an output, they are counted."""
        return next(
            (output for output in self.to if isinstance(output, ToStream | ToDead) and output.late),
            None,
        )

    @property
    def keeps_events(self) -> bool:
        """Whether all that passes leaves as it came, with its key, its headers and its id."""
        return not any(isinstance(step, Select | Explode | Enrich | Key) for step in self.steps)

    @property
    def sink(self) -> Output | None:
        """The one output that is elsewhere than in Kafka (ADR 0084)."""
        return next((output for output in self.to if output.is_sink), None)

    @property
    def is_tee(self) -> bool:
        """Whether all events go to an archive as they come, and nothing looks at them."""
        return isinstance(self.sink, ToArchive) and not (self.steps or self.schema)

    @property
    def to_database(self) -> DatabaseTable | None:
        return next((output.database for output in self.to if isinstance(output, ToDatabase)), None)

    @property
    def streams_to(self) -> list[ToStream]:
        return [output for output in self.to if isinstance(output, ToStream)]

    @property
    def streams(self) -> set[str]:
        """Every stream that it names."""
        return {self.source.stream, *(output.stream for output in self.streams_to)}

    @property
    def tables_to(self) -> set[str]:
        """The tables that it writes."""
        return {output.table for output in self.to if isinstance(output, ToTable)}

    @property
    def tables_from(self) -> set[str]:
        """The tables that it looks up in."""
        return {step.enrich.table for step in self.steps if isinstance(step, Enrich)}

    @property
    def tables(self) -> set[str]:
        """Every table that it names."""
        return self.tables_to | self.tables_from

    @property
    def targets(self) -> list[str]:
        """The streams and tables that it writes to, by name, each once."""
        names = (
            each.stream if isinstance(each, ToStream) else each.table
            for each in self.to
            if isinstance(each, ToStream | ToTable) and not getattr(each, "late", False)
        )
        return [*dict.fromkeys(names)]

    @property
    def fingerprint(self) -> str:
        """The hash that tells this document from any other: a verdict names the document by it."""
        return hashlib.sha256(self.to_json()).hexdigest()[:16]

    @property
    def config_key(self) -> bytes:
        return config_key("pipeline", self.name)

    def to_json(self) -> bytes:
        """Not sorted, unlike others: events are written with their columns in this order."""
        return json.dumps(self.to_fields()).encode()


def _check_size(pipeline: Pipeline) -> None:
    if (size := len(pipeline.to_json())) > DOCUMENT_BYTES_MAX:
        raise ConfigError("", f"the document has {size} bytes; {DOCUMENT_BYTES_MAX} are the most")


def _check_outputs(pipeline: Pipeline) -> None:
    outputs = pipeline.to
    check_outputs(pipeline.steps, outputs)
    _check_sink(pipeline)
    if len(outputs) > 1 and pipeline.match is None and any(each.when for each in outputs):
        wrong = "of several outputs with a `when`, say first or all: who gets what several want"
        raise ConfigError("match", wrong)
    for index, output in enumerate(outputs):
        if pipeline.takes_first and index and not outputs[index - 1].when:
            wrong = "nothing gets here: the one before has no `when`, and `match: first`"
            raise ConfigError(f"to.{index}", wrong)
        if isinstance(output, ToTable):
            _check_to_table(pipeline, output, index)
        if not isinstance(output, ToStream):
            continue
        if output.repost and pipeline.explodes:
            wrong = "events that are posted again keep their ids, and so cannot be exploded"
            raise ConfigError(f"to.{index}.repost", wrong)
        if output.stream == pipeline.source.stream and not output.repost:
            wrong = "it reads this stream itself: say `repost: true` if that is what you want"
            raise ConfigError(f"to.{index}.stream", wrong)


def _check_sink(pipeline: Pipeline) -> None:
    if (sink := pipeline.sink) is not None and len(pipeline.to) > 1:
        wrong = "is the only output of its pipeline, as it goes on at a pace of its own"
        raise ConfigError("to", f"`{sink.member}` {wrong}: make a pipeline for each")
    if isinstance(pipeline.sink, ToArchive) and pipeline.explodes:
        wrong = "an archive keeps one event for each offset: explode in a pipeline before it"
        raise ConfigError("to.0.archive", wrong)
    if pipeline.to_database and not (pipeline.schema or pipeline.rewrites):
        raise ConfigError("to.0.database", "say which members become columns: by schema or select")


def _check_to_table(pipeline: Pipeline, output: ToTable, nth: int) -> None:
    if not pipeline.rewrites:
        wrong = "a row is an object that the pipeline makes: say of what, with select"
        raise ConfigError(f"to.{nth}.table", wrong)
    if output.table in {each.stream for each in pipeline.streams_to}:
        raise ConfigError(f"to.{nth}.table", "a stream of this pipeline is called so as well")
    if output.table in pipeline.tables_from:
        wrong = "it looks up in this table itself: what it finds would depend on when it runs"
        raise ConfigError(f"to.{nth}.table", wrong)


def _check_tests(pipeline: Pipeline) -> None:
    streams = set(pipeline.targets)
    for index, test in enumerate(pipeline.tests):
        if unknown := sorted(test.tables.keys() - pipeline.tables_from):
            wrong = f"it looks up in {sorted(pipeline.tables_from)} alone"
            raise ConfigError(f"tests.{index}.tables.{unknown[0]}", wrong)
        if test.times and len(test.times) != len(test.given):
            raise ConfigError(f"tests.{index}.times", "say when each of the given events happened")
        where = f"tests.{index}.expect"
        if not isinstance(test.expect, dict):
            if test.expect and len(streams) != 1 and pipeline.sink is None:
                raise ConfigError(where, f"say for each of {sorted(streams)} what comes there")
        elif unknown := sorted(test.expect.keys() - streams):
            raise ConfigError(f"{where}.{unknown[0]}", f"it writes to {sorted(streams)} alone")
