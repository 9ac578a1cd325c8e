"""The follower of tables, with a real Kafka: copies are made, resumed, repaired and removed."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaProducer

from deploy.local.cluster import Cluster
from pipelines.tables.look_ups import CopyRows, TableNotReadyError
from shared.config.table import Table
from shared.event.record import RecordOut
from shared.event.topics import fixed_specs
from shared.runtime.kafka.only_writer import only_writer
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.tables.folders import DAMAGED, OpenCopy, TableCopies, copy_folder
from shared.runtime.tables.keeper import command, is_followed, keep_followed
from tests.support.kafka.config_records import write_config, write_records
from tests.support.kafka.kafka_log import write_rows
from tests.support.kafka.topics_anew import make_anew

pytestmark = pytest.mark.integration

PATIENCE_S = 60.0
MIB = 1_048_576


def until(holds: Callable[[], bool], what: str) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until_s, f"still not so: {what}"
        time.sleep(0.02)


def made(kafka: Cluster, *tables: Table) -> None:
    async def make() -> None:
        async with topic_admin(kafka.bootstrap_servers) as admin:
            await admin.create_missing([*fixed_specs([]), *(table.spec for table in tables)])
        await write_config(kafka.bootstrap_servers, tables)

    asyncio.run(make())


def write(kafka: Cluster, table: Table, **rows: str) -> None:
    records = [RecordOut(table.topic, key.encode(), value.encode()) for key, value in rows.items()]
    asyncio.run(write_rows(kafka.bootstrap_servers, records))


@contextmanager
def followed(folder: Path, kafka: Cluster, *, how: int = signal.SIGTERM) -> Iterator[None]:
    child = subprocess.Popen(command(folder, kafka.bootstrap_servers, os.getpid()))
    try:
        yield
    finally:
        child.send_signal(how)
        child.wait(timeout=30)


def opened(copies: TableCopies, table: Table) -> OpenCopy:
    until(lambda: copies.of(table) is not None, f"there is a copy of {table.name}")
    found = copies.of(table)
    assert found is not None
    return found


def value(copy: OpenCopy, key: str) -> bytes | None:
    row, _ = copy.copy.row(key)
    return row and row.value


def test_copies_are_made_kept_fresh_resumed_and_taken_away(kafka: Cluster, tmp_path: Path) -> None:
    table = Table("followed-rows")
    copies = TableCopies(tmp_path)
    made(kafka, table)
    write(kafka, table, a='{"n":1}', b='{"n":1}')
    with followed(tmp_path, kafka, how=signal.SIGKILL):
        copy = opened(copies, table)
        assert value(copy, "a") == b'{"n":1}'
        write(kafka, table, a='{"n":2}')
        until(lambda: value(copy, "a") == b'{"n":2}', "the change is there")
        heard_ms = copy.heard.at_ms
        until(lambda: copy.heard.at_ms > heard_ms, "the time advances without changes")
        # A second follower does not follow.
        second = subprocess.run(
            command(tmp_path, kafka.bootstrap_servers, os.getpid()), timeout=30, check=True
        )
        assert second.returncode == 0
    write(kafka, table, c='{"n":3}')
    number = copy.number
    with followed(tmp_path, kafka):
        until(lambda: value(copy, "c") == b'{"n":3}', "the follower continues after a kill -9")
        assert opened(copies, table).number == number
        # A reader that finds the copy unreadable has it rebuilt.
        (copy_folder(tmp_path, table) / DAMAGED).touch()
        until(lambda: copies.of(table) not in (None, copy), "the copy is rebuilt")
        assert value(opened(copies, table), "b") == b'{"n":1}'
        gone = [(table.config_key, None)]
        asyncio.run(write_records(kafka.bootstrap_servers, gone))
        until(lambda: not copy_folder(tmp_path, table).exists(), "a removed table has no copy")
    copies.close()


def test_a_copy_of_a_topic_that_was_made_anew_has_nothing_of_the_old(
    kafka: Cluster, tmp_path: Path
) -> None:
    """This holds even where the new topic is longer: its beginning would never be read."""
    table = Table("followed-anew")
    copies = TableCopies(tmp_path)
    made(kafka, table)
    write(kafka, table, old='{"n":1}', both='{"n":1}')
    with followed(tmp_path, kafka):
        copy = opened(copies, table)
        until(lambda: value(copy, "both") == b'{"n":1}', "the copy is complete")
    asyncio.run(make_anew(kafka.bootstrap_servers, table.spec))
    write(kafka, table, new='{"n":2}', both='{"n":2}', more='{"n":2}')
    with followed(tmp_path, kafka):
        until(lambda: copies.of(table) not in (None, copy), "the copy is rebuilt")
        copy = opened(copies, table)
        until(lambda: value(copy, "more") == b'{"n":2}', "the copy is complete")
        assert [value(copy, key) for key in ("old", "new", "both")] == [None, *[b'{"n":2}'] * 2]
    copies.close()


def test_only_what_is_committed_is_in_a_copy(kafka: Cluster, tmp_path: Path) -> None:
    table = Table("followed-transactions")
    copies = TableCopies(tmp_path)
    made(kafka, table)

    async def broken_off() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=kafka.bootstrap_servers, transactional_id="broken-off"
        )
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait(table.topic, b'{"n":0}', key=b"a")
        await producer.abort_transaction()
        await producer.stop()
        async with only_writer(kafka.bootstrap_servers, "hifi-tables-test") as write:
            await write([(table.topic, b"b", b'{"n":1}', ())])

    asyncio.run(broken_off())
    with followed(tmp_path, kafka):
        copy = opened(copies, table)
        until(lambda: value(copy, "b") is not None, "the committed rows are there")
        assert value(copy, "a") is None
    copies.close()


def test_a_table_without_room_stands_still_and_says_so_until_it_is_given_some(
    kafka: Cluster, tmp_path: Path
) -> None:
    small = Table("followed-large-rows", bytes_max=MIB)
    copies = TableCopies(tmp_path)
    made(kafka, small)
    large = '{"x":"' + "y" * 200_000 + '"}'
    with followed(tmp_path, kafka):
        copy = opened(copies, small)
        write(kafka, small, **{f"k{nth}": large for nth in range(12)}, last="{}")
        until(lambda: copies.is_full(small), "the copy is reported as full")
        at_ms = copy.heard.at_ms
        larger = Table("followed-large-rows", bytes_max=8 * MIB)
        asyncio.run(write_config(kafka.bootstrap_servers, [larger]))

        def has_last() -> bool:
            found = copies.of(larger)
            return found is not None and value(found, "last") == b"{}"

        until(has_last, "there is room now")
        until(lambda: not copies.is_full(larger), "the copy is no longer full")
        assert opened(copies, larger).heard.at_ms > at_ms
    copies.close()


def test_a_table_that_was_filled_before_its_copy_was_there_can_be_emptied(
    kafka: Cluster, tmp_path: Path
) -> None:
    table = Table("followed-filled", bytes_max=MIB)
    copies = TableCopies(tmp_path)
    made(kafka, table)
    names, large = [f"k{nth}" for nth in range(30)], '{"x":"' + "y" * 50_000 + '"}'
    write(kafka, table, **dict.fromkeys(names, large))
    with followed(tmp_path, kafka):
        copy = opened(copies, table)
        assert copy.copy.used_bytes() > MIB
        assert not copies.is_full(table)
        write(kafka, table, **dict.fromkeys(names, ""), last="{}")
        until(lambda: value(copy, "last") == b"{}", "the follower continues")
        assert [row.key for row in copy.copy.page().rows] == ["last"]
        assert copy.copy.used_bytes() < MIB
    copies.close()


def test_somebody_follows_as_long_as_it_is_needed(kafka: Cluster, tmp_path: Path) -> None:
    made(kafka)

    async def scenario() -> None:
        keeping = asyncio.create_task(
            keep_followed(tmp_path, kafka.bootstrap_servers, lambda: True)
        )
        while not is_followed(tmp_path):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
        owner = int((tmp_path / "follower" / "owner.lock").read_text())
        os.kill(owner, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            while not is_followed(tmp_path) or _owner(tmp_path) == owner:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        assert not is_followed(tmp_path)

    asyncio.run(scenario())


def _owner(folder: Path) -> int:
    return int((folder / "follower" / "owner.lock").read_text() or 0)


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_a_million_rows_are_ready_within_five_seconds_of_a_restart(
    kafka: Cluster, tmp_path: Path
) -> None:
    table, count = Table("followed-million", bytes_max=1024 * MIB), 1_000_000
    copies = TableCopies(tmp_path)
    made(kafka, table)
    row = b'{"name":"somebody with a name","country":"DE","class":"gold"}'
    rows = (RecordOut(table.topic, b"c-%d" % nth, row) for nth in range(count))
    asyncio.run(write_rows(kafka.bootstrap_servers, rows))
    began_s = time.monotonic()
    with followed(tmp_path, kafka, how=signal.SIGKILL):
        last = f"c-{count - 1}"

        def is_there() -> bool:
            copy = copies.of(table)
            return copy is not None and value(copy, last) is not None

        until_s = time.monotonic() + 600
        while not is_there():
            assert time.monotonic() < until_s
            time.sleep(0.1)
    sys.stdout.write(f"built from the log in {time.monotonic() - began_s:.1f} s\n")
    copies.close()
    write(kafka, table, last="{}")
    began_s = time.monotonic()
    with followed(tmp_path, kafka):
        fresh = TableCopies(tmp_path)
        copy = opened(fresh, table)
        until(lambda: value(copy, "last") is not None, "the follower has continued")
        took_s = time.monotonic() - began_s
        fresh.close()
    sys.stdout.write(f"ready {took_s:.2f} s after a restart\n")
    assert took_s < 5.0


@pytest.mark.long
def test_who_looks_up_where_nobody_follows_has_it_followed(kafka: Cluster, tmp_path: Path) -> None:
    """A task does the same on a machine of a Spark cluster without any other part of Hifi."""
    table = Table("followed-elsewhere")
    made(kafka, table)
    write(kafka, table, a='{"n":1}', b='{"n":2}')
    keys, nowhere = pa.array(["b", None, "x", "b", "", "y" * 600]), pa.array([0] * 6)
    with pytest.raises(TableNotReadyError):
        CopyRows(str(tmp_path / "tables"), table)(keys, nowhere)
    try:
        look_up = CopyRows(str(tmp_path / "tables"), table, kafka.bootstrap_servers)
        found = look_up(keys, nowhere).to_pylist()
    finally:
        os.kill(_owner(tmp_path / "tables"), signal.SIGTERM)
        until(lambda: not is_followed(tmp_path / "tables"), "the follower has ended")
    assert [each["row"] for each in found] == ['{"n":2}', None, None, '{"n":2}', None, None]
    assert {each["at"] for each in found} == {2}
