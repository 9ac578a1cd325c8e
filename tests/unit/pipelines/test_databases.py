"""Columns that are written, and processes that leave an unreachable database alone."""

from typing import Any

import pytest

from pipelines.databases import kind
from pipelines.databases import sink as writing
from pipelines.databases.database import PositionOf, Stand
from pipelines.databases.kind import Databases
from pipelines.databases.rows import ColumnOf, Takes
from pipelines.jobs.sink import SinkAwayError
from pipelines.members import columns_of
from shared.config.pipeline import Pipeline
from shared.event.record import KafkaPartition
from shared.flow.breaker import FAILURES_IN_ROW


def pipeline(name: str = "p", tenant: str = "t", url: str = "h", **fields: Any) -> Pipeline:
    table = {"url": f"postgres://u@{url}/d", "table": "t", "key": ["id"]}
    known = {"steps": [{"select": {"id": "hifi.event_id"}}], "to": [{"database": table}]}
    return Pipeline.of({"name": name, "from": {"stream": "s"}, "tenant": tenant, **known, **fields})


class Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def databases(clock: Clock) -> Databases:
    return Databases(allows_private=False, files=None, clock=clock)


def fail(databases: Databases, one: Pipeline, *, times: int = FAILURES_IN_ROW) -> None:
    for _ in range(times):
        databases.made(one, "id")
        databases.ended(one, SinkAwayError("it is away"))


def test_what_an_event_has_in_the_end_is_written() -> None:
    assert columns_of(pipeline()) == ("id",)
    select = {"select": {"b": "1", "a": "2"}}
    assert columns_of(pipeline(steps=[select])) == ("b", "a")
    explode = {"explode": {"a": "array(1)"}}
    assert columns_of(pipeline(steps=[select, explode, {"key": "a"}])) == ("b", "a")
    assert columns_of(pipeline(steps=[explode])) == ("a",)


def test_a_sink_knows_what_a_task_has_to_know(databases: Databases) -> None:
    databases.ends = {KafkaPartition("hifi.stream.s", 2): 7, KafkaPartition("hifi.stream.x", 2): 9}
    sink = databases.made(pipeline(), "id")
    assert (sink.name, sink.owner, sink.ends, sink.columns) == ("p", "pipeline:p", {2: 7}, ("id",))
    assert databases.made(pipeline(generation=2), "id").name == "p/2"


def test_a_stream_that_was_made_anew_has_a_position_of_its_own(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the old stream's position, its events were once skipped and reported as delivered."""

    class Table:
        columns = (ColumnOf("id", "text", Takes.TEXT),)
        stood: dict[PositionOf, int] = {}  # noqa: RUF012 - of all that are opened

        def stand(self, place: PositionOf, begin: int) -> Stand:
            return Stand(self.stood.setdefault(place, begin), {})

        def close(self) -> None:
            pass

    monkeypatch.setattr(writing, "opened", lambda *_: Table())
    where = KafkaPartition("hifi.stream.s", 0)
    # The log has grown past the position, so its length does not show that it has other events.
    databases.ends = {where: 6_000}

    def next_offset(topic_id: str, begin: int) -> int:
        with databases.made(pipeline(), topic_id).open({where: (begin, begin + 9)}) as writer:
            return writer._begun(0).next_offset

    assert next_offset("first", 5_000) == 5_000
    assert next_offset("first", 0) == 5_000
    assert next_offset("second", 0) == 0


def test_who_fails_again_and_again_is_left_alone_and_then_one_tries(
    databases: Databases, clock: Clock
) -> None:
    one, other = pipeline("one"), pipeline("other")
    fail(databases, one)
    for each in (one, other):
        with pytest.raises(SinkAwayError, match="failed to answer"):
            databases.made(each, "id")
    # The failure does not affect pipelines of another tenant, or at another server.
    databases.made(pipeline(tenant="u"), "id")
    databases.made(pipeline(url="h2"), "id")
    clock.now_ms += 2_000
    databases.made(one, "id")
    with pytest.raises(SinkAwayError):
        databases.made(other, "id")
    databases.ended(one, None)
    for _ in range(2):
        databases.made(other, "id")
        databases.ended(other, None)
    databases.made(one, "id")
    databases.made(other, "id")


def test_what_is_wrongly_set_and_what_kafka_does_say_nothing_of_the_server(
    databases: Databases,
) -> None:
    one = pipeline()
    for error in (SinkAwayError("no table", is_wrongly_set=True), OSError("Kafka")):
        for _ in range(2 * FAILURES_IN_ROW):
            databases.made(one, "id")
            databases.ended(one, error)
    databases.made(pipeline("other"), "id")


def test_a_probe_that_was_not_made_is_made_by_the_next(databases: Databases, clock: Clock) -> None:
    one, other = pipeline("one"), pipeline("other")
    fail(databases, one)
    clock.now_ms += 2_000
    databases.made(one, "id")
    databases.ended(one, OSError("Kafka"))
    databases.made(other, "id")


def test_so_many_servers_are_remembered(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "_BREAKERS_MAX", 2)
    for nth in range(3):
        fail(databases, pipeline(url=f"h{nth}"))
    databases.made(pipeline(url="h0"), "id")
    with pytest.raises(SinkAwayError):
        databases.made(pipeline(url="h2"), "id")
