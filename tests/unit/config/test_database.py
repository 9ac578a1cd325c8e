"""Databases of pipelines: their addresses, the keys of rows, and the password of each shard."""

from typing import Any

import pytest

from shared.config.model import ConfigError
from shared.config.outside.database import DatabaseTable, Shard, change_passwords, passwords_of
from shared.config.pipeline import Pipeline, ToDatabase

URL = "postgres://hifi@db.example.com/shop"
SEALED = "sealed:v1:abc"
TABLE: dict[str, Any] = {"url": URL, "table": "sales", "key": ["id"]}


def document(table: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    to = {"database": {**TABLE, **(table or {})}}
    known = {"name": "p", "from": {"stream": "s"}, "schema": "id STRING", "to": [to]}
    return {**known, **fields}


def made(table: dict[str, Any] | None = None, **fields: Any) -> DatabaseTable:
    found = Pipeline.of(document(table, **fields)).to_database
    assert found is not None
    return found


def test_a_table_says_where_it_is() -> None:
    place = made({"password": SEALED}).shard(7)
    assert (place.host, place.port, place.user) == ("db.example.com", 5432, "hifi")
    assert (place.database, place.table, place.password) == ("shop", "sales", SEALED)
    assert place.file is None
    other = made({"url": "postgresql://a%40b@[::1]:6000/x%20y"}).shard(0)
    assert (other.host, other.port, other.user, other.database) == ("::1", 6000, "a@b", "x y")
    assert made({"url": "sqlite:shop"}).shard(0).file == "shop"


def test_each_kafka_partition_may_have_a_table_of_its_own() -> None:
    elsewhere = "postgres://hifi@two.example.com/shop"
    shards = [
        {"table": "sales_0"},
        {"url": elsewhere, "password": SEALED + "2"},
        {"url": elsewhere, "table": "t"},
    ]
    table = made({"password": SEALED, "shards": shards})
    assert table.shards[0] == Shard(table="sales_0")
    found = [table.shard(nth) for nth in range(3)]
    assert [place.table for place in found] == ["sales_0", "sales", "t"]
    assert [place.url for place in found] == [URL, elsewhere, elsewhere]
    # A password belongs to one address.
    assert [place.password for place in found] == [SEALED, SEALED + "2", None]
    with pytest.raises(KeyError):
        table.shard(3)


@pytest.mark.parametrize(
    ("table", "setting", "says"),
    [
        ({"url": "postgres://hifi:secret@h/d"}, "url", "put the password into `password`"),
        ({"url": "mysql://hifi@h/d"}, "url", "is not an address"),
        ({"url": "postgres://h/d"}, "url", "is not an address"),
        ({"url": "postgres://hifi@h"}, "url", "is not an address"),
        ({"url": "postgres://hifi@h:0/d"}, "url", "is not an address"),
        ({"url": "postgres://hifi@h:x/d"}, "url", "is not an address"),
        ({"url": "postgres://hifi@h/d?options=-csearch_path"}, "url", "is not an address"),
        ({"url": "postgres://hifi@h/a b"}, "url", "is not an address"),
        ({"url": "sqlite:../x"}, "url", "is not an address"),
        ({"table": "a.b.c"}, "table", "is not a table's name"),
        ({"table": 'a"b'}, "table", "is not a table's name"),
        ({"key": ["a b"]}, "key.0", "cannot name a column"),
        ({"key": ["a", "a"]}, "key", "twice"),
        ({"key": []}, "key", "`mode: insert`"),
        ({"mode": "insert"}, "key", "takes no key"),
        ({"mode": "merge"}, "mode", "should be 'upsert' or 'insert'"),
        ({"password": "Plain1"}, "password", "must be sealed"),
        ({"password": 12345}, "password", "it should be a valid string"),
        ({"shards": [{"table": "a"}, {"table": "a"}]}, "shards", "the same table"),
        ({"shardz": []}, "shardz", "no such field"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_said(
    table: dict[str, Any], setting: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        made(table)
    assert refused.value.setting == f"to.0.database.{setting}"
    assert "hifi:secret" not in str(refused.value)
    assert "Plain1" not in str(refused.value)
    assert "12345" not in str(refused.value)


def test_a_database_stands_alone_and_its_columns_are_known() -> None:
    outputs = [*document()["to"], {"dead": True}]
    with pytest.raises(ConfigError, match="must be the only output"):
        Pipeline.of(document(to=outputs, match="all"))
    with pytest.raises(ConfigError, match="name the members for its columns"):
        Pipeline.of(document(schema=""))
    pipeline = Pipeline.of(
        document(
            schema="",
            steps=[{"select": {"id": "hifi.event_id"}}],
            tests=[{"given": [{}], "expect": [{"id": "0"}]}],
        )
    )
    assert isinstance(pipeline.sink, ToDatabase)
    assert pipeline.streams == {"s"}
    assert Pipeline.of(document(to=[{"stream": "x"}])).to_database is None


def test_passwords_are_changed_where_they_stand_and_nothing_else_is() -> None:
    elsewhere = "postgres://hifi@two.example.com/shop"
    shards = [{"table": "a"}, {"password": SEALED}, {"url": elsewhere, "password": SEALED}, "odd"]
    fields = document({"password": SEALED, "shards": shards})
    asked: list[tuple[str, str]] = []

    def change(path: str, url: str, value: Any) -> str:
        asked.append((path, url))
        return f"{value}!"

    changed = change_passwords(fields, change)
    assert asked == [
        ("to.0.database.password", URL),
        ("to.0.database.shards.1.password", URL),
        ("to.0.database.shards.2.password", elsewhere),
    ]
    assert passwords_of(changed) == {path: f"{SEALED}!" for path, _ in asked}
    assert passwords_of(fields)[asked[0][0]] == SEALED
    for odd in ({}, {"to": "x"}, {"to": ["x", {"database": 1}, {"database": {"password": None}}]}):
        assert change_passwords(odd, change) == odd
