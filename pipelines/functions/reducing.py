"""Runs reducers in Spark's Python workers: makes each event's state, and merges the states.

None of this runs in the driver's process, which pipelines share: a reducer that throws, hangs or
ends its process fails a job, just as a function that a step calls does.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StringType

from pipelines.alike import is_alike
from pipelines.functions.calls import in_their_places
from pipelines.functions.faults import blaming
from pipelines.functions.granted import reads_of
from pipelines.functions.installed import reducer_of
from pipelines.functions.reducer import Reducer, State
from pipelines.functions.states import Fold, FoldedState, ToFold

# The maximum size of a window's state in one reducer, and of its value in a row: the same as the
# limit of a set.
STATE_BYTES_MAX = 32_768
# The maximum number of tasks of a fold, which may take a minute: they use places that all pipelines
# share.
_TASKS_MAX = 2


def with_states(
    rows: DataFrame,
    name: str,
    given: Mapping[str, Column],
    alive: Callable[[Column], Column],
    *,
    into: str,
) -> DataFrame:
    """Add the initial state of each event, as a text; null for an event that adds nothing."""
    events = F.struct(*(given[each].alias(each) for each in reads_of(name).fieldNames()))
    as_udf: Any = arrow_udf
    return rows.withColumn(into, as_udf(_beginning(name), StringType())(alive(events)))


def fold_in(context: SparkContext, *, both_ways: bool = False) -> Fold:
    """Return a fold that runs in Spark tasks of its own and merges each window by itself.

    With `both_ways`, a result that depends on the order is an error.
    """

    def fold(asked: Sequence[ToFold]) -> Sequence[FoldedState]:
        tasks = min(len(asked), _TASKS_MAX)
        work = partial(folded, both_ways=both_ways)
        come: list[FoldedState] = context.parallelize(asked, tasks).map(work).collect()
        return come

    return fold


def _beginning(name: str) -> Callable[[Any], Any]:
    def begin(events: Any) -> Any:
        return begun(name, events)

    # Spark reads the types from these annotations.
    begin.__annotations__ = {"events": pa.Array, "return": pa.Array}
    return begin


def begun(name: str, events: pa.StructArray) -> Any:
    """In a worker: return the states of these events, in order."""
    is_asked = events.is_valid()
    asked = events.filter(is_asked)
    texts: list[str | None] = []
    if len(asked):
        with blaming(name):
            states = reducer_of(name).begin(pa.RecordBatch.from_struct_array(asked))
            if len(states) != len(asked):
                raise ValueError(f"it returned {len(states)} states for {len(asked)} events")
            texts = [None if state is None else _text(state) for state in states]
    return in_their_places(pa.array(texts, pa.string()), is_asked)


def folded(asked: ToFold, *, both_ways: bool = False) -> FoldedState:
    """In a worker: merge all states of one window, always in the same order."""
    with blaming(asked.function):
        reducer, texts = reducer_of(asked.function), sorted(asked.states)
        if len(texts) == 1:
            # Merge the state with itself, so that a bad state fails with its own event, not later.
            reducer.merge(json.loads(texts[0]), json.loads(texts[0]))
        come = _come(reducer, asked, texts)
        if both_ways:
            says = _come(reducer, asked, texts[::-1]).says
            if not is_alike(json.loads(says), json.loads(come.says)):
                raise ValueError(f"its result is {come.says}, and in another order {says}"[:300])
        if (size := max(map(len, come))) > STATE_BYTES_MAX:
            raise ValueError(f"it keeps {size:,} bytes per window; max {STATE_BYTES_MAX:,}")
        return come


def _come(reducer: Reducer, asked: ToFold, texts: Sequence[str]) -> FoldedState:
    states = (_so_often(reducer.merge, text, asked.states[text]) for text in texts)
    state = _text(reduce(reducer.merge, states))
    return FoldedState(state, _text(reducer.finish(json.loads(state))))


def _so_often(merge: Callable[[State, State], State], text: str, count: int) -> State:
    """Merge this many copies of a state; large counts merge halves."""
    if count == 1:
        return json.loads(text)
    half = _text(_so_often(merge, text, count // 2))
    both = merge(json.loads(half), json.loads(half))
    return merge(both, json.loads(text)) if count % 2 else both


def _text(state: State) -> str:
    """The state as JSON in ASCII, so that each character is a byte."""
    return json.dumps(state, sort_keys=True, allow_nan=False, separators=(",", ":"))
