"""Events of a stream become rows of a real Postgres while Hifi runs, except for bad events."""

import asyncio
import json
import re
from pathlib import Path
from typing import cast

import pytest

from deploy.cli.control.pipeline_files import read_document, to_put
from shared.event.envelope import LAST_DETAIL, REASON
from shared.event.record import RecordOut
from shared.event.topics import stream_topic
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.kafka.kafka_log import read_all, write_rows
from tests.support.pipelines.database_runs import (
    counted_table,
    positions,
    put_document,
    state_of,
    to_database,
)
from tests.support.pipelines.pipeline_runs import START_S, post_all, wait_until_all_is_done
from tests.support.pipelines.postgres_process import PASSWORD, PostgresProcess

pytestmark = pytest.mark.integration

DOCS = (Path(__file__).parents[3] / "docs" / "database.md").read_text()
SCHEMA = "id STRING, n INT, note STRING"


def test_events_become_rows_and_a_bad_one_a_dead_letter(
    hifi: RunningHifi, postgres: PostgresProcess, database: str
) -> None:
    counted_table(postgres, database, "sold")
    pipeline = put_document(
        hifi, "db-rows", "dbrows", schema=SCHEMA, to=[to_database(postgres, database, "sold")]
    )
    bad = 7_321
    events = [
        {"id": f"s-{n}", "n": -1 if n == bad else n, "note": "ä", "more": [n]}
        for n in range(10_000)
    ]
    post_all(hifi, "dbrows", events)
    wait_until_all_is_done(hifi, pipeline, 10_000)
    assert postgres.rows("SELECT count(*), sum(n) FROM sold WHERE note = 'ä'", database) == [
        (9_999, sum(range(10_000)) - bad)
    ]
    assert postgres.rows("SELECT count(*) FROM sold_writes", database) == [(9_999,)]
    (letter,) = hifi.dead_letters(pipeline.lane_id)
    said = dict(letter.headers)
    assert said[REASON] == b"refused_by_database"
    assert b"violates check constraint" in said[LAST_DETAIL]
    assert b'"s-7321"' in letter.value
    balance = hifi.balance(pipeline.lane_id)
    assert (balance.delivered, balance.dead, balance.unaccounted) == (9_999, 1, 0)
    ends: dict[int, int] = {}
    for record in asyncio.run(read_all(hifi.kafka, stream_topic("dbrows"))):
        ends[record.partition] = record.offset + 1
    assert positions(postgres, database, "dbrows") == ends
    # A record without a value, a tombstone, deletes the row of its key.
    gone = [RecordOut(stream_topic("dbrows"), key, cast("bytes", None)) for key in (b"s-5", b"s-6")]
    asyncio.run(write_rows(hifi.kafka, gone))
    wait_until(
        lambda: postgres.rows("SELECT count(*) FROM sold", database) == [(9_997,)],
        what="two rows are deleted",
    )


def test_what_is_wrong_is_said_and_nothing_is_lost_until_it_is_mended(
    hifi: RunningHifi, postgres: PostgresProcess, database: str
) -> None:
    pipeline = put_document(
        hifi,
        "db-mended",
        "dbmended",
        schema="id STRING, n INT, items ARRAY<INT>",
        steps=[{"explode": {"item": "items"}}, {"select": {"id": "id || '-' || item", "n": "n"}}],
        to=[to_database(postgres, database, "mended")],
    )
    post_all(hifi, "dbmended", [{"id": f"s-{n}", "n": n, "items": [1, 2]} for n in range(20)])

    def waits_for(words: str) -> None:
        wait_until(
            lambda: words in state_of(hifi, "db-mended")["why"],
            what=lambda: f"{words!r} is reported: {state_of(hifi, 'db-mended')}",
            timeout_s=START_S,
        )

    waits_for("there is no table mended")
    postgres.run("CREATE TABLE mended (id TEXT PRIMARY KEY)", database=database)
    waits_for("table mended has no column n: ALTER TABLE mended ADD COLUMN n")
    postgres.run("ALTER TABLE mended ADD COLUMN n INTEGER", database=database)
    wait_until_all_is_done(hifi, pipeline, 20)
    assert postgres.rows("SELECT count(*), sum(n) FROM mended", database) == [(40, 380)]
    wait_until(
        lambda: state_of(hifi, "db-mended").items() >= {"standing": "running", "why": ""}.items(),
        what=lambda: f"the pipeline is well again: {state_of(hifi, 'db-mended')}",
    )
    assert not hifi.dead_letters(pipeline.lane_id)


def test_the_docs_bring_a_table_in_step_from_nothing(
    hifi: RunningHifi,
    postgres: PostgresProcess,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Other tests may use the stream that the docs name.
    page = DOCS.replace("orders", "shoporders")
    page = page.replace("127.0.0.1:5432/shop", f"127.0.0.1:{postgres.port}/{database}")
    (tables,) = re.findall(r"^```sql\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    postgres.run(tables, database=database)
    file = tmp_path / "sales.yaml"
    file.write_text(re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0])
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    document = read_document(file)
    (output,) = to_put(document)["to"]
    assert output["database"]["password"] == PASSWORD
    fields = {name: it for name, it in to_put(document).items() if name not in {"name", "from"}}
    assert "hifi streams put shoporders --key-pointer /id\n" in page
    pipeline = put_document(hifi, "sales-to-shop", "shoporders", key_pointer="/id", **fields)
    (events,) = re.findall(r"-d '(\[.*?\])'", page, re.DOTALL)
    post_all(hifi, "shoporders", json.loads(events))
    wait_until_all_is_done(hifi, pipeline, 5)
    balance = hifi.balance(pipeline.lane_id)
    assert (balance.delivered, balance.dead) == (4, 1), "not four delivered and one dead"
    (letter,) = hifi.dead_letters(pipeline.lane_id)
    said = dict(letter.headers)[LAST_DETAIL].decode()
    assert said.startswith('new row for relation "sales" violates check constraint "sales_total_')
    assert re.search(r"\*(new row .*?)\*", page)[1] in said  # type: ignore[index]
    shown = re.findall(
        r"^\$ psql shop -c '(.*?)'\n(.*?\(\d+ rows?\))", page, re.MULTILINE | re.DOTALL
    )
    assert len(shown) == 2
    for query, wanted in shown:
        came = postgres.psql(query, database=database).replace(
            "hifi.stream.shoporders", "hifi.stream.orders"
        )
        assert _squeezed(came) == _squeezed(wanted.replace("shoporders", "orders"))


def _squeezed(text: str) -> list[str]:
    """Return the cells of a table, however wide they are."""
    lines = text.strip().splitlines()
    return [re.sub(r" +", " ", line).strip() for line in lines if "---" not in line]


@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.long)])
@pytest.mark.parametrize("victim", ["pipelines", "postgres"])
def test_kills_in_mid_batch_write_no_row_twice_and_lose_none(
    hifi: RunningHifi, postgres: PostgresProcess, database: str, victim: str, kills: int
) -> None:
    name = f"dbkills-{victim}-{kills}"
    counted_table(postgres, database, "kept")
    pipeline = put_document(
        hifi,
        name,
        name,
        schema="id STRING, n INT, note STRING",
        steps=[{"select": {"id": "id", "n": "n", "note": "note"}}],
        to=[to_database(postgres, database, "kept")],
    )
    count_of = "SELECT count(*) FROM kept"
    total, each = 0, 4_000
    for _ in range(kills):
        events = [{"id": f"s-{n}", "n": n, "note": "x" * 50} for n in range(total, total + each)]
        (before,) = postgres.rows(count_of, database)
        post_all(hifi, name, events)
        total += each
        wait_until(
            lambda now=before: postgres.rows(count_of, database) != [now],  # type: ignore[misc]
            what="some rows are written",
            timeout_s=START_S,
            look_s=0.01,
        )
        if victim == "postgres":
            postgres.kill()
            postgres.start()
            continue
        hifi.stack.children["pipelines"].kill()
        hifi.revive("pipelines")
    wait_until_all_is_done(hifi, pipeline, total)
    found = postgres.rows("SELECT count(*), count(DISTINCT id), sum(n) FROM kept", database)
    assert found == [(total, total, sum(range(total)))]
    written = postgres.rows("SELECT count(*), count(DISTINCT id) FROM kept_writes", database)
    assert written == [(total, total)], "a row was written twice"
    ends: dict[int, int] = {}
    for record in asyncio.run(read_all(hifi.kafka, stream_topic(name))):
        ends[record.partition] = record.offset + 1
    assert positions(postgres, database, name) == ends
    assert not hifi.dead_letters(pipeline.lane_id)
