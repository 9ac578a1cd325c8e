"""Settings of a pipeline: the stream that it reads, its steps, and its outputs.

A document is data: its leaves are Spark SQL expressions, never statements. The code here checks its
shape; processes with Spark check its expressions. A process that does not know a step, an output or
a test refuses the whole document: otherwise events would go to wrong places.
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
# Each step adds a projection to the plan that Spark optimises for each job.
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
    """Keeps events for which the expression is true; filters the others."""

    member: ClassVar[str] = "where"
    where: Expression


@dataclass(frozen=True, slots=True, config=_PART)
class Select:
    """Replaces the event by one with only these columns."""

    member: ClassVar[str] = "select"
    select: Columns


@dataclass(frozen=True, slots=True, config=_PART)
class Explode:
    """Makes an event of each element of a list; the element is in the column with this name."""

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
    """The table and row to look up, and the members of the row that the event gets."""

    table: Name
    # The row's key.
    key: Expression
    # The row's members to read, with their types, as for events.
    schema: Annotated[str, Field(min_length=1, max_length=SCHEMA_CHARS_MAX)]
    # The column for these members.
    into: Annotated[str, Field(alias="as"), check(is_column, NO_COLUMN)]
    # An event without a row gets null, or becomes a dead letter.
    missing: Literal["keep", "dead"] = "keep"


@dataclass(frozen=True, slots=True, config=_PART)
class Enrich:
    """Adds members of a table's row to the event."""

    member: ClassVar[str] = "enrich"
    enrich: LookedUp


@dataclass(frozen=True, slots=True, config=_PART)
class ToStream:
    """Writes events to a stream if `when` is true for them; without `when`, all that get here."""

    member: ClassVar[str] = "stream"
    is_sink: ClassVar[bool] = False
    stream: Name
    when: Expression | None = None
    # It may close a cycle of streams: returning events keep their ids, and are skipped.
    repost: bool = False
    # It gets only events that are too late for their window, unchanged.
    late: bool = False


@dataclass(frozen=True, slots=True, config=_PART)
class ToTable:
    """Writes a row, under the event's key, for each event for which `when` is true."""

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
    # It gets only events that are too late for their window.
    late: bool = False


@dataclass(frozen=True, slots=True, config=_PART)
class ToArchive:
    """Archives the events that get here in one of the operator's stores."""

    member: ClassVar[str] = "archive"
    is_sink: ClassVar[bool] = True
    when: ClassVar[None] = None
    archive: Name


@dataclass(frozen=True, slots=True, config=_PART)
class ToDatabase:
    """Writes rows of a database table, once per event; it is the only output of its document."""

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
    """A stream's events, the steps that process them, and the outputs for the results."""

    name: Name
    source: Annotated[Source, Field(alias="from")]
    to: Annotated[tuple[Output, ...], Field(min_length=1, max_length=OUTPUTS_MAX)]
    # The event's members to read, as Spark writes columns: "id STRING, price DOUBLE".
    schema: Annotated[str, Field(max_length=SCHEMA_CHARS_MAX)] = ""
    steps: Annotated[tuple[Step, ...], Field(max_length=STEPS_MAX)] = ()
    # Whether an event goes to the first output that accepts it, or to all that do.
    match: Match | None = None
    tests: Annotated[tuple[PipelineTest, ...], Field(max_length=TESTS_MAX)] = ()
    # The owner of the streams.
    tenant: Name = DEFAULT_TENANT
    # A pipeline rebuilt beside the old one has the next generation, and gives events other ids.
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
        """Whether it skips events that were in the stream before it began."""
        return self.source.start != "earliest"

    @property
    def lane_id(self) -> str:
        """Its id at its stream, like a destination's; it changes with the stream."""
        return pipeline_lane(self.source.stream, self.name, self.generation)

    @property
    def title(self) -> str:
        """The name that distinguishes it from its other generations."""
        return of_generation(self.name, self.generation)

    @property
    def takes_first(self) -> bool:
        """Whether only the first output that accepts an event gets it."""
        return self.match == "first"

    @property
    def explodes(self) -> bool:
        return any(isinstance(step, Explode) for step in self.steps)

    @property
    def rewrites(self) -> bool:
        """Whether it rewrites events; otherwise their bytes stay unchanged."""
        return any(isinstance(step, Select | Explode | Enrich | WindowStep) for step in self.steps)

    @property
    def window(self) -> WindowOf | None:
        """The settings of its window step, if it has one."""
        return next((step.window for step in self.steps if isinstance(step, WindowStep)), None)

    @property
    def dedupe(self) -> OnceOf | None:
        return next((step.dedupe for step in self.steps if isinstance(step, Dedupe)), None)

    @property
    def kept_shape(self) -> str:
        """A hash of the settings of its windows or keys; empty if it keeps neither."""
        return shape_of(next((step for step in self.steps if isinstance(step, Keeping)), None))

    @property
    def kept_spec(self) -> TopicSpec | None:
        """The topic of its windows or keys; None if it keeps neither."""
        return kept_spec(self.name, self.generation) if self.kept_shape else None

    @property
    def late_to(self) -> ToStream | ToDead | None:
        """The output for late events; without one, they are only counted."""
        return next(
            (output for output in self.to if isinstance(output, ToStream | ToDead) and output.late),
            None,
        )

    @property
    def keeps_events(self) -> bool:
        """Whether events leave unchanged, with their keys, headers and ids."""
        return not any(isinstance(step, Select | Explode | Enrich | Key) for step in self.steps)

    @property
    def sink(self) -> Output | None:
        """The only output, if it is outside Kafka (ADR 0084)."""
        return next((output for output in self.to if output.is_sink), None)

    @property
    def is_tee(self) -> bool:
        """Whether all events go to an archive unchanged and unread."""
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
        """The tables that it reads."""
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
        """A hash of this document: verdicts name the document by it."""
        return hashlib.sha256(self.to_json()).hexdigest()[:16]

    @property
    def config_key(self) -> bytes:
        return config_key("pipeline", self.name)

    def to_json(self) -> bytes:
        """Return it as unsorted JSON: events are written with their columns in this order."""
        return json.dumps(self.to_fields()).encode()


def _check_size(pipeline: Pipeline) -> None:
    if (size := len(pipeline.to_json())) > DOCUMENT_BYTES_MAX:
        raise ConfigError("", f"the document has {size} bytes, more than {DOCUMENT_BYTES_MAX}")


def _check_outputs(pipeline: Pipeline) -> None:
    outputs = pipeline.to
    check_outputs(pipeline.steps, outputs)
    _check_sink(pipeline)
    if len(outputs) > 1 and pipeline.match is None and any(each.when for each in outputs):
        wrong = "set first or all: who gets an event that several outputs with `when` accept"
        raise ConfigError("match", wrong)
    for index, output in enumerate(outputs):
        if pipeline.takes_first and index and not outputs[index - 1].when:
            wrong = "nothing gets here: with `match: first`, the output before it takes all events"
            raise ConfigError(f"to.{index}", wrong)
        if isinstance(output, ToTable):
            _check_to_table(pipeline, output, index)
        if not isinstance(output, ToStream):
            continue
        if output.repost and pipeline.explodes:
            wrong = "reposted events keep their ids, so they cannot be exploded"
            raise ConfigError(f"to.{index}.repost", wrong)
        if output.stream == pipeline.source.stream and not output.repost:
            wrong = "the pipeline reads this stream itself: set `repost: true` if you want that"
            raise ConfigError(f"to.{index}.stream", wrong)


def _check_sink(pipeline: Pipeline) -> None:
    if (sink := pipeline.sink) is not None and len(pipeline.to) > 1:
        wrong = "must be the only output of its pipeline, because it runs at its own pace"
        raise ConfigError("to", f"`{sink.member}` {wrong}: make a pipeline for each output")
    if isinstance(pipeline.sink, ToArchive) and pipeline.explodes:
        wrong = "an archive keeps one event for each offset: explode in an earlier pipeline"
        raise ConfigError("to.0.archive", wrong)
    if pipeline.to_database and not (pipeline.schema or pipeline.rewrites):
        raise ConfigError("to.0.database", "name the members for its columns by schema or select")


def _check_to_table(pipeline: Pipeline, output: ToTable, nth: int) -> None:
    if not pipeline.rewrites:
        wrong = "a row is an object that the pipeline makes: add a select step that makes it"
        raise ConfigError(f"to.{nth}.table", wrong)
    if output.table in {each.stream for each in pipeline.streams_to}:
        raise ConfigError(f"to.{nth}.table", "a stream of this pipeline has the same name")
    if output.table in pipeline.tables_from:
        wrong = "the pipeline reads this table itself: results would depend on when it runs"
        raise ConfigError(f"to.{nth}.table", wrong)


def _check_tests(pipeline: Pipeline) -> None:
    streams = set(pipeline.targets)
    for index, test in enumerate(pipeline.tests):
        if unknown := sorted(test.tables.keys() - pipeline.tables_from):
            wrong = f"the pipeline only reads {sorted(pipeline.tables_from)}"
            raise ConfigError(f"tests.{index}.tables.{unknown[0]}", wrong)
        if test.times and len(test.times) != len(test.given):
            raise ConfigError(f"tests.{index}.times", "set one time for each given event")
        where = f"tests.{index}.expect"
        if not isinstance(test.expect, dict):
            if test.expect and len(streams) != 1 and pipeline.sink is None:
                raise ConfigError(where, f"list the events expected at each of {sorted(streams)}")
        elif unknown := sorted(test.expect.keys() - streams):
            raise ConfigError(f"{where}.{unknown[0]}", f"it only writes to {sorted(streams)}")
