"""Has Spark tasks read from archives the records that Kafka no longer has.

One task reads each Kafka partition, object by object, in order. So the rows are the same as if
Kafka still had the records: with their offsets and times (ADR 0091).
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pipelines.parts.standing_back import StandingBack
from shared.event.record import KafkaPartition, Ranges, RecordIn
from shared.runtime.archive.archived_log import DamagedObjectError, Piece, sound_bytes
from shared.runtime.archive.files import UnreadableError, log_rows
from shared.runtime.archive.stores import OpenStore, StoreAwayError
from shared.runtime.settings import SecretSettings
from shared.runtime.spark.arrow_rows import SCHEMA_IN, records_of
from shared.runtime.spark.session import map_arrow

# The columns of Spark's Kafka source that a plan takes, in the order of `log_rows`; and an error.
_RECORDS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " headers array<struct<key: string, value: binary>>, away string"
)
# The name under which a job observes that an archive did not return its events.
AWAY = "away"
_ROWS_MAX = 10_000
# Objects that are fetched at once: each fetch mostly waits for the store.
_AT_ONCE = 16
# The work of one task: a Kafka partition, the offsets from and to, and the archive's piece.
Part = tuple[KafkaPartition, tuple[int, int], Piece]


class ArchiveAwayError(Exception):
    """An archive did not return its events; the text is for people, without secrets."""


def records_in_archives(
    spark: SparkSession, ranges: Ranges, pieces: Mapping[KafkaPartition, Piece]
) -> DataFrame:
    """Return records with the columns of Spark's Kafka source that a plan takes.

    A task does not raise when an archive is away: Spark would retry it four times, and not report
    the rows already written. The failure is observed as `AWAY`.
    """
    parts = [(where, ranges[where], piece) for where, piece in sorted(pieces.items())]
    numbers = spark.range(0, len(parts), 1, len(parts))
    rows = map_arrow(numbers, partial(_read, parts=parts), _RECORDS)
    observed = rows.observe(AWAY, F.max(AWAY).alias(AWAY))
    return observed.where(F.col(AWAY).isNull()).drop(AWAY)


def _read(batches: Iterable[pa.RecordBatch], *, parts: Sequence[Part]) -> Iterator[pa.RecordBatch]:
    restraint = StandingBack()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            try:
                for rows in kept_rows(*parts[int(number or 0)]):
                    yield rows.append_column(AWAY, pa.nulls(rows.num_rows, pa.string()))
                    time.sleep(restraint.rest_s())
            except ArchiveAwayError as away:
                yield _said(str(away))


def _said(why: str) -> pa.RecordBatch:
    schema = SCHEMA_IN.append(pa.field(AWAY, pa.string()))
    return pa.RecordBatch.from_pylist([{AWAY: why}], schema)


def kept_rows(
    where: KafkaPartition, span: tuple[int, int], piece: Piece
) -> Iterator[pa.RecordBatch]:
    """Fetch all objects before the first row, then unpack one at a time.

    Raise ArchiveAwayError if one cannot be fetched.
    """
    begin, end = span
    wanted = [
        each for each in piece.objects if each.archived.end > begin and each.from_offset < end
    ]
    try:
        bucket = OpenStore(piece.store, SecretSettings().secret_box, folders=piece.folders)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            packed = [*pool.map(partial(sound_bytes, bucket), (each.archived for each in wanted))]
        for (_, from_offset), data in zip(wanted, packed, strict=True):
            table = log_rows([(data, where, max(begin, from_offset), end)])
            yield from table.to_batches(max_chunksize=_ROWS_MAX)
    except (StoreAwayError, DamagedObjectError, UnreadableError) as error:
        raise ArchiveAwayError(str(error)) from None


def kept_record(where: KafkaPartition, at: int, piece: Piece) -> RecordIn | None:
    """Return the record at an offset; None if there is none. ArchiveAwayError as above."""
    for rows in kept_rows(where, (at, at + 1), piece):
        for record in records_of(rows):
            return record
    return None
