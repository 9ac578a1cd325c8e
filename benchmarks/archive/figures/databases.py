"""Measures how fast a pipeline writes rows to a database, and the gain of static shards.

(a) A pipelines process writes a backlog of 200,000 events of 500 bytes in 4 Kafka partitions to
one Postgres table. (b) Two writers send batches of 500 rows to eight shards, with the code of
pipelines. Spread: each batch has rows for all shards, and needs a transaction with each. Static:
each batch has rows for one shard. Five interleaved rounds; then the same with batches of 100 and
1,000 rows. Postgres waits for its disk, and shares the machine with Kafka and Spark.

Pipelines gather rows for 0.2 s; with 2,500 events/s in a Kafka partition, these are the 500 rows of
a batch.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from multiprocessing import get_context

from benchmarks.paced import write_all
from benchmarks.pipelines.bench import Bench, make_streams
from pipelines.databases.database import PositionOf, Server, Target
from pipelines.databases.postgres import PostgresTable
from pipelines.databases.rows import RowChange
from shared.config.pipeline import Pipeline
from shared.runtime.secret_box import SecretBox, new_key
from tests.support.pipelines.postgres_process import (
    PASSWORD,
    USER,
    PostgresProcess,
    running_postgres,
)

_EVENTS = 200_000
_ROUNDS = 5
_SHARDS = 8
_WRITERS = 2
_BATCH, _OTHER_BATCHES = 500, (100, 1_000)
# Batches of each writer in a round.
_BATCHES = 48
_TARGET = Target("rows", ("id", "n", "note"), key=("id",))
_TABLE = "CREATE TABLE rows (id TEXT PRIMARY KEY, n BIGINT, note TEXT)"
_DATABASES = [f"shard_{shard}" for shard in range(_SHARDS)]


def measure(bench: Bench) -> dict[str, float]:
    """Return the figures; a gain is the median of the rounds' ratios."""
    with running_postgres(is_durable=True) as postgres:
        rows_per_s, missing = _through_a_pipeline(bench, postgres)
        for name in _DATABASES:
            postgres.run(f"CREATE DATABASE {name}", database="postgres")
            postgres.run(_TABLE, database=name)
        batches = bench.count(_BATCHES)
        by_rows = {
            rows: [_round(postgres, number, batches, rows) for number in range(_ROUNDS + 1)][1:]
            for rows in (_BATCH, *_OTHER_BATCHES)
        }
        written = sum(int(str(_count(postgres, name))) for name in _DATABASES)
    expected = (_ROUNDS + 1) * 2 * _WRITERS * batches * sum(by_rows)
    rounds = by_rows[_BATCH]
    return {
        "db_rows_per_s": round(rows_per_s),
        "static_gain": _gain(rounds),
        **{f"static_gain_{rows}": _gain(by_rows[rows]) for rows in _OTHER_BATCHES},
        "static_rows_per_s": round(statistics.median(rates["static"] for rates in rounds)),
        "spread_rows_per_s": round(statistics.median(rates["spread"] for rates in rounds)),
        "errors": missing + abs(written - expected),
    }


def _gain(rounds: Sequence[dict[str, float]]) -> float:
    return round(statistics.median(rates["static"] / rates["spread"] for rates in rounds), 2)


def _through_a_pipeline(bench: Bench, postgres: PostgresProcess) -> tuple[float, int]:
    postgres.run(_TABLE.replace("n BIGINT, note", "made_ns BIGINT, pad"))
    count = bench.count(_EVENTS)
    make_streams(bench.servers, ["rows"])
    write_all(bench.servers, "rows", count=count)
    os.environ["HIFI_SECRET_KEYS"] = key = new_key()
    table = {
        "url": f"postgres://{USER}@127.0.0.1:{postgres.port}/shop",
        "password": SecretBox([key]).seal(PASSWORD, owner="pipeline:rows"),
        "tls": "off",
        "table": "rows",
        "mode": "insert",
    }
    pipeline = Pipeline.of(
        {
            "name": "rows",
            "from": {"stream": "rows"},
            "schema": "id STRING, made_ns BIGINT, pad STRING",
            "steps": [{"select": {"id": "hifi.event_id", "made_ns": "made_ns", "pad": "pad"}}],
            "to": [{"database": table}],
        }
    )
    with bench.running(ALLOW_PRIVATE="true") as runner:
        rate = runner.drain(pipeline, count)
    return rate, abs(count - int(str(_count(postgres, "shop"))))


def _count(postgres: PostgresProcess, database: str) -> object:
    return postgres.rows("SELECT count(*) FROM rows", database)[0][0]


def _round(postgres: PostgresProcess, nth: int, batches: int, rows: int) -> dict[str, float]:
    """Return rows per second of both ways, which take turns, so their tables are equally large."""
    ways = {"spread": _spread, "static": _static}
    rates = {}
    for way, of in ways.items() if nth % 2 else reversed(ways.items()):
        # Separate processes, because Spark's workers do not share an interpreter either.
        with ProcessPoolExecutor(_WRITERS, get_context("spawn")) as writers:
            work = partial(_write_all, postgres.port, f"{way}-{rows}-{nth}", batches, rows, of)
            spans = list(writers.map(work, range(_WRITERS)))
        took_s = max(ended_s for _, ended_s in spans) - min(began_s for began_s, _ in spans)
        rates[way] = _WRITERS * batches * rows / took_s
    return rates


def _spread(writer: int, batch: int) -> Sequence[int]:
    """Return all shards, as for a Kafka partition with events of every shard."""
    del writer, batch
    return range(_SHARDS)


def _static(writer: int, batch: int) -> Sequence[int]:
    """Return the writer's shards in turn, as with a Kafka partition for each shard."""
    mine = range(writer, _SHARDS, _WRITERS)
    return [mine[batch % len(mine)]]


def _write_all(  # noqa: PLR0917 - arguments for another process
    port: int,
    name: str,
    batches: int,
    rows: int,
    of: Callable[[int, int], Sequence[int]],
    writer: int,
) -> tuple[float, float]:
    """Write all batches; return when the writing began and ended."""
    given = [list(_changes(name, writer, batch, rows)) for batch in range(batches)]
    with ExitStack() as resources:
        tables = [resources.enter_context(closing(_open(port, shard))) for shard in _DATABASES]
        places = [PositionOf(name, f"rows-{shard}", writer) for shard in range(_SHARDS)]
        reached = [
            table.stand(place, 0).next_offset for table, place in zip(tables, places, strict=True)
        ]
        began_s = time.monotonic()
        for batch, changes in enumerate(given):
            shards, end = of(writer, batch), (batch + 1) * rows
            for index, shard in enumerate(shards):
                tables[shard].start(places[shard], reached[shard], end)
                tables[shard].write(changes[index :: len(shards)])
                tables[shard].commit(places[shard], {})
                reached[shard] = end
        return began_s, time.monotonic()


def _open(port: int, database: str) -> PostgresTable:
    server = Server("127.0.0.1", port, database, USER, PASSWORD, ("127.0.0.1",), tls="off")
    return PostgresTable(server, _TARGET)


def _changes(name: str, writer: int, batch: int, rows: int) -> Iterable[RowChange]:
    for index in range(rows):
        offset = batch * rows + index
        key = f"{name}/{writer}/{offset}"
        yield RowChange(offset, (key,), (key, str(offset), "DE"))
