"""Lets pipelines of a running Hifi write to a real Postgres, and reads the written rows."""

from typing import Any

import httpx

from shared.config.pipeline import Pipeline
from shared.event.topics import stream_topic
from tests.support.deploy.stack_fixtures import RunningHifi
from tests.support.pipelines.postgres_process import PASSWORD, USER, PostgresProcess

# Each written row is counted, so a repeat shows.
COUNTED = """
CREATE TABLE {table} (id TEXT PRIMARY KEY, n INTEGER CHECK (n >= 0), note TEXT);
CREATE TABLE {table}_writes (id TEXT);
CREATE FUNCTION {table}_count() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN INSERT INTO {table}_writes VALUES (NEW.id); RETURN NEW; END $$;
CREATE TRIGGER counting AFTER INSERT OR UPDATE ON {table}
  FOR EACH ROW EXECUTE FUNCTION {table}_count();
"""


def counted_table(postgres: PostgresProcess, database: str, table: str) -> None:
    postgres.run(COUNTED.format(table=table), database=database)


def url_of(postgres: PostgresProcess, database: str) -> str:
    return f"postgres://{USER}@127.0.0.1:{postgres.port}/{database}"


def to_database(
    postgres: PostgresProcess, database: str, table: str, **fields: Any
) -> dict[str, Any]:
    """Return an output of a document."""
    known = {"url": url_of(postgres, database), "password": PASSWORD, "table": table, "tls": "off"}
    return {"database": {**known, "key": ["id"], **fields}}


def put_document(
    hifi: RunningHifi, name: str, source: str, *, key_pointer: str = "", **fields: Any
) -> Pipeline:
    """Put a document through the API, which seals the password."""
    stream = {"key_pointer": key_pointer}
    made = httpx.put(f"{hifi.gateway}/v1/streams/{source}", json=stream, timeout=30)
    assert made.status_code in {200, 201}, made.text
    body = {"from": {"stream": source}, **fields}
    answer = httpx.put(f"{hifi.gateway}/v1/pipelines/{name}", json=body, timeout=30)
    assert answer.status_code in {200, 201}, answer.text
    assert PASSWORD not in answer.text
    return Pipeline.of({"name": name, **body, "to": [{"dead": True}], "tests": []})


def state_of(hifi: RunningHifi, name: str) -> dict[str, str]:
    answer = httpx.get(f"{hifi.gateway}/v1/pipelines/{name}", timeout=30)
    assert PASSWORD not in answer.text
    state: dict[str, str] = answer.json()["state"]
    return state


def positions(postgres: PostgresProcess, database: str, stream: str) -> dict[int, int]:
    query = (
        "SELECT partition, next_offset FROM hifi_positions"
        f" WHERE topic LIKE '{stream_topic(stream)}@%'"
    )
    return {int(str(at)): int(str(end)) for at, end in postgres.rows(query, database)}
