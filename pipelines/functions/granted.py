"""Finds the installed functions that a tenant may call, and returns their columns."""

from collections.abc import Collection

from pyspark.sql.types import StructType

from pipelines.functions.installed import NoFunctionError, function_of, installed, reducer_of
from pipelines.members import members_of
from shared.config.configuration import Configuration
from shared.config.model import ConfigError
from shared.config.outside.call import Call
from shared.config.pipeline import Pipeline
from shared.config.steps.computed import reducers_of


def calls_of(pipeline: Pipeline) -> list[str]:
    """The functions, and reducers, that the pipeline needs."""
    reducers = reducers_of(pipeline.window.compute).values() if pipeline.window else ()
    return [*(step.call for step in pipeline.steps if isinstance(step, Call)), *reducers]


def granted(tenant: str, configuration: Configuration) -> frozenset[str]:
    """The names of functions that documents of a tenant may use."""
    known = configuration.tenants.get(tenant)
    return frozenset(known.functions) & installed().keys() if known else frozenset()


def check_granted(name: str, allowed: Collection[str]) -> None:
    """Raise NoFunctionError if the name is none of these."""
    if name not in allowed:
        there = ", ".join(sorted(allowed)) or "none (an operator installs them, and grants them)"
        raise NoFunctionError(f"there is no function {name!r}; there are: {there}")


def signature_of(name: str) -> tuple[StructType, StructType]:
    """The columns that a function reads and returns; NoFunctionError if there is none."""
    function = function_of(name)
    return _members(name, function.reads), _members(name, function.returns)


def reads_of(name: str) -> StructType:
    """The columns that a reducer reads; NoFunctionError if there is none."""
    return _members(name, reducer_of(name).reads)


def _members(name: str, said: str) -> StructType:
    try:
        return members_of(said)
    except ConfigError as error:
        wrong = f"{name!r} declares columns that cannot exist: {error.wrong}"
        raise NoFunctionError(wrong) from None
