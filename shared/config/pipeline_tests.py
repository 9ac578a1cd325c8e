"""The tests within a pipeline's document: events, the rows there are, and the expected results."""

from dataclasses import field
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from shared.config.model import CONFIG
from shared.config.steps.window import Moment, moment_ms
from shared.config.values import Name

GIVEN_MAX = 100
EXPECTED_MAX = 1_000
_TABLES_MAX = 32

_PART = ConfigDict(**CONFIG, extra="forbid")


def _check_expected(given: Any) -> Any:
    lists = list(given.values()) if isinstance(given, dict) else [given]
    if not all(isinstance(each, list | tuple) and len(each) <= EXPECTED_MAX for each in lists):
        wrong = f"it is a list of at most {EXPECTED_MAX} events, or such a list for each stream"
        raise ValueError(wrong)
    return given


# Events, whatever JSON they are.
_Events: TypeAlias = Annotated[tuple[Any, ...], Field(max_length=EXPECTED_MAX, strict=False)]


# Rows by their keys.
_Rows: TypeAlias = Annotated[dict[str, dict[str, Any]], Field(max_length=EXPECTED_MAX)]


@dataclass(frozen=True, slots=True, config=_PART)
class PipelineTest:
    """A test of the results that some events have; it is run before the pipeline is."""

    given: Annotated[tuple[Any, ...], Field(min_length=1, max_length=GIVEN_MAX)]
    # The expected events, in order; for several streams and tables, by their names.
    expect: Annotated[_Events | dict[Name, _Events], BeforeValidator(_check_expected)] = ()
    # The given events that end as dead letters.
    dead: _Events = ()
    # The given events that come too late for their windows.
    late: _Events = ()
    # When the events happened; by default each happened a second after the one before.
    times: Annotated[tuple[Moment, ...], Field(max_length=GIVEN_MAX, strict=False)] = ()
    # The existing rows of each table that is looked up in, by their keys.
    tables: Annotated[dict[Name, _Rows], Field(max_length=_TABLES_MAX)] = field(
        default_factory=dict
    )

    @property
    def times_ms(self) -> list[int]:
        return [moment_ms(each) for each in self.times]
