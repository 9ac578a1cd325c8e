"""Tests in a pipeline's document: given events, given rows of tables, and expected results."""

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
        wrong = f"use a list of at most {EXPECTED_MAX} events, or one such list for each stream"
        raise ValueError(wrong)
    return given


# Events of any JSON type.
_Events: TypeAlias = Annotated[tuple[Any, ...], Field(max_length=EXPECTED_MAX, strict=False)]


# Rows by key.
_Rows: TypeAlias = Annotated[dict[str, dict[str, Any]], Field(max_length=EXPECTED_MAX)]


@dataclass(frozen=True, slots=True, config=_PART)
class PipelineTest:
    """A test of a pipeline's results for given events; it runs before the pipeline does."""

    given: Annotated[tuple[Any, ...], Field(min_length=1, max_length=GIVEN_MAX)]
    # The expected events, in order; by name if there are several streams and tables.
    expect: Annotated[_Events | dict[Name, _Events], BeforeValidator(_check_expected)] = ()
    # The given events that become dead letters.
    dead: _Events = ()
    # The given events that are too late for their windows.
    late: _Events = ()
    # The times of the given events; by default each is one second after the previous one.
    times: Annotated[tuple[Moment, ...], Field(max_length=GIVEN_MAX, strict=False)] = ()
    # The rows of each table that the pipeline reads, by key.
    tables: Annotated[dict[Name, _Rows], Field(max_length=_TABLES_MAX)] = field(
        default_factory=dict
    )

    @property
    def times_ms(self) -> list[int]:
        return [moment_ms(each) for each in self.times]
