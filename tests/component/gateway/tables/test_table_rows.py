"""Rows over HTTP: the permitted writes and writers, and how rows are returned and listed."""

import json
import threading
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.publish.report import Fate
from shared.config.access import Tenant
from shared.config.configuration import Configuration
from shared.event.table_row import window_key
from shared.event.times import HOUR_MS
from shared.runtime.clock import now_ms
from shared.runtime.tables.folders import FULL, copy_folder
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway
from tests.support.gateway.table_fixtures import (
    KEYS,
    MIB,
    ROWS,
    TABLES,
    OneProcess,
    table_config,
    table_gateway,
    written_copies,
)


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[OneProcess]:
    with written_copies(tmp_path) as found:
        yield found


@pytest.fixture
def config() -> FixedConfig:
    return table_config()


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([table.topic for table in TABLES.values()])


@pytest.fixture
def gateway(
    config: FixedConfig, publisher: FakePublisher, copies: OneProcess
) -> Iterator[RunningGateway]:
    with table_gateway(publisher, config, copies) as running:
        yield running


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def as_key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name]}"}


def written(publisher: FakePublisher, table: str = "customers") -> dict[bytes, bytes]:
    events = publisher.stored(TABLES[table].topic)
    return {event.key or b"": event.value for event in events}


# Writing


def test_a_row_is_written_and_taken_away(gateway: RunningGateway, publisher: FakePublisher) -> None:
    answer = gateway.client.put(f"{ROWS}/c-1", json={"country": "DE"})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["accepted"], answer.json()["offset"]) == (1, 0)
    assert written(publisher) == {b"c-1": b'{"country":"DE"}'}
    assert gateway.client.delete(f"{ROWS}/c-1").status_code == 200
    assert written(publisher) == {b"c-1": b""}
    # A key may contain a slash, and is encoded in the path like any other text.
    assert gateway.client.put(f"{ROWS}/a/b%20%C3%BC", json={}).status_code == 200
    assert "a/b ü".encode() in written(publisher)


def test_many_rows_are_written_at_once(gateway: RunningGateway, publisher: FakePublisher) -> None:
    lines = [{"key": f"c-{nth}", "row": {"n": nth}} for nth in range(10)]
    lines.append({"key": "c-0", "row": None})  # type: ignore[dict-item]
    body = "\n".join(json.dumps(line) for line in lines) + "\n\n"
    answer = gateway.client.post(ROWS, content=body)
    assert (answer.status_code, answer.json()["accepted"]) == (200, 11)
    assert written(publisher)[b"c-9"] == b'{"n": 9}'
    assert written(publisher)[b"c-0"] == b""


@pytest.mark.parametrize(
    ("line", "pointer"),
    [
        ('{"key": "a", "row": {}, "other": 1}', "/1"),
        ('{"key": "a"}', "/1"),
        ('{"key": "a", "row": {"x": }}', "/1"),
        ('{"key": "a", "row": [1]}', "/1"),
        ('{"key": "", "row": {}}', "/1/key"),
        ('{"key": "a\\u0000", "row": {}}', "/1/key"),
        ('{"key": "' + "x" * 481 + '", "row": {}}', "/1/key"),
        ('{"key": "a", "row": {"x": "' + "y" * 1_000 + '"}}', "/1"),
        ('{"key": "a", "row": ' + '{"x":' * 150 + "1" + "}" * 150 + "}", "/1"),
    ],
)
def test_of_rows_with_a_wrong_one_none_is_taken(
    gateway: RunningGateway, publisher: FakePublisher, line: str, pointer: str
) -> None:
    answer = gateway.client.post(ROWS, content='{"key": "first", "row": {}}\n' + line)
    assert code(answer) == (422, "bad_row")
    assert answer.json()["pointer"] == pointer
    assert written(publisher) == {}


def test_what_is_no_row_is_refused(gateway: RunningGateway) -> None:
    client = gateway.client
    assert code(client.put(f"{ROWS}/a", content=b"{")) == (400, "invalid_json")
    assert code(client.put(f"{ROWS}/a", content=b'{"a":"\xff"}')) == (400, "invalid_utf8")
    assert code(client.put(f"{ROWS}/a", content=b"null")) == (422, "bad_row")
    assert code(client.put(f"{ROWS}/%00", json={})) == (422, "bad_row")
    assert code(client.post(ROWS, content=b"\n")) == (422, "bad_row")
    for key in ("a%FFb", "a%C3", "%ED%A0%80"):
        for method in ("GET", "PUT", "DELETE"):
            answer = client.request(method, f"{ROWS}/{key}", json={})
            assert code(answer) == (400, "bad_path"), (method, key)
    many = '{"key":"a","row":{}}\n' * 101
    assert code(client.post(ROWS, content=many)) == (413, "too_many_events")
    assert code(client.post(f"{ROWS}/a", json={})) == (405, "method_not_allowed")
    assert client.post(f"{ROWS}/a", json={}).headers["allow"] == "GET, PUT, DELETE"
    assert code(client.put("/v1/tables/none/rows/a", json={})) == (404, "unknown_table")


def test_only_who_may_writes_and_only_what_is_written_over_http(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    client = gateway.client
    assert code(client.put("/v1/tables/theirs/rows/a", json={})) == (404, "unknown_table")
    assert code(client.put("/v1/tables/sums/rows/a", json={})) == (409, "table_in_use")
    for name, refusal in (("reads", "scope_missing"), ("some", "scope_missing")):
        assert code(client.put(f"{ROWS}/a", json={}, headers=as_key(name))) == (403, refusal)
    unsigned = client.put(f"{ROWS}/a", json={}, headers=as_key("signs"))
    assert code(unsigned) == (401, "bad_signature")
    assert client.put(f"{ROWS}/a", json={}, headers=as_key("writes")).status_code == 200
    del client.headers["authorization"]
    assert code(client.put(f"{ROWS}/a", json={})) == (401, "unauthenticated")
    assert [*written(publisher)] == [b"a"]


def test_yes_means_that_kafka_has_it(gateway: RunningGateway, publisher: FakePublisher) -> None:
    publisher.fates = {"b": Fate.NOT_STORED}
    body = '{"key":"a","row":{}}\n{"key":"b","row":{}}'
    answer = gateway.client.post(ROWS, content=body)
    assert (code(answer), answer.json()["accepted"]) == ((503, "not_stored"), 1)
    publisher.fates = {"b": Fate.UNKNOWN}
    assert code(gateway.client.put(f"{ROWS}/b", json={})) == (504, "outcome_unknown")


def test_a_quota_counts_rows(gateway: RunningGateway, config: FixedConfig) -> None:
    bounded = {"default": Tenant("default", events_per_s=5)}
    config.configuration = Configuration(
        tables=TABLES, keys=config.configuration.keys, tenants=bounded
    )
    many = "\n".join(json.dumps({"key": str(nth), "row": {}}) for nth in range(50))
    first = gateway.client.post(ROWS, content=many)
    assert first.status_code == 200
    assert "tenant-events" in first.headers["ratelimit-policy"]
    assert code(gateway.client.post(ROWS, content=many)) == (429, "quota_events")


def test_into_a_table_that_is_full_nothing_goes_but_deletions(
    gateway: RunningGateway, copies: OneProcess
) -> None:
    large = json.dumps({"x": "y" * 900})
    copies.write("customers", *((f"k{nth}", large) for nth in range(1_000)))
    assert copies.writers["customers"].used_bytes() > 0.9 * MIB
    assert code(gateway.client.put(f"{ROWS}/a", json={})) == (409, "table_full")
    assert gateway.client.delete(f"{ROWS}/a").status_code == 200
    copies.write("customers", *((f"k{nth}", "") for nth in range(500)))
    assert gateway.client.put(f"{ROWS}/a", json={}).status_code == 200


def test_what_is_written_at_once_is_no_more_than_there_is_room_for(
    gateway: RunningGateway, copies: OneProcess, publisher: FakePublisher
) -> None:
    large = json.dumps({"x": "y" * 900})

    def write(names: Sequence[str]) -> tuple[int, str]:
        lines = "".join(f'{{"key":"{name}","row":{large}}}\n' for name in names)
        answer = gateway.client.post(ROWS, content=lines)
        return answer.status_code, answer.json().get("code", "")

    # As other gateways may do the same, one is an eighth of a megabyte ahead of the copy at most.
    answers = [write([f"k{nth}-{each}" for each in range(100)]) for nth in range(9)]
    assert answers == [(200, ""), *[(503, "table_not_ready")] * 8]
    stored = [key.decode() for key in written(publisher)]
    assert len(stored) == 100
    copies.write("customers", *((name, large) for name in stored))
    assert write(["other"] * 100) == (200, "")
    # Rewritten rows take no more room.
    assert write(stored) == (200, "")
    # More than fits beside the existing rows.
    for nth in count():
        if copies.writers["customers"].used_bytes() >= 0.82 * MIB:
            break
        copies.write("customers", (f"m{nth}", large))
    assert write([f"more-{nth}" for nth in range(100)]) == (409, "table_full")


def test_a_table_whose_copy_stands_still_says_so(
    gateway: RunningGateway, copies: OneProcess
) -> None:
    folder = copy_folder(copies.folder, TABLES["sums"])
    folder.mkdir()
    asked = f"{ROWS}/a".replace("customers", "sums")
    assert "being made" in gateway.client.get(asked).json()["detail"]
    (folder / FULL).touch()
    answer = gateway.client.get(asked)
    assert code(answer) == (503, "table_not_ready")
    assert "raise the limit (268435456 bytes" in answer.json()["detail"]
    full = copy_folder(copies.folder, TABLES["customers"])
    full.mkdir()
    (full / FULL).touch()
    assert code(gateway.client.put(f"{ROWS}/a", json={})) == (409, "table_full")


# Reading


def test_a_row_is_answered_with_how_fresh_it_is(
    gateway: RunningGateway, copies: OneProcess
) -> None:
    copies.write("customers", ("c-1", '{"country":"DE"}'), ("c-2", "{}"))
    answer = gateway.client.get(f"{ROWS}/c-1", headers=as_key("reads"))
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["key"], told["row"], told["offset"]) == ("c-1", {"country": "DE"}, 0)
    assert told["as_of"]["offset"] == 2
    assert 0 <= told["as_of"]["age_ms"] < 10_000
    again = gateway.client.get(f"{ROWS}/c-1", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert gateway.client.head(f"{ROWS}/c-1").status_code == 200
    copies.write("customers", ("c-1", '{"country":"NO"}'))
    changed = gateway.client.get(f"{ROWS}/c-1", headers={"if-none-match": answer.headers["etag"]})
    assert changed.json()["row"] == {"country": "NO"}
    etag = changed.headers["etag"]
    for known in (f"W/{etag}", f'"x", W/{etag}', "*"):
        known_to = {"if-none-match": known}
        assert gateway.client.get(f"{ROWS}/c-1", headers=known_to).status_code == 304, known
    absent = gateway.client.get(f"{ROWS}/c-3", headers={"if-none-match": "*"})
    assert (code(absent), absent.json()["as_of"]["offset"]) == ((404, "unknown_row"), 3)


def test_rows_are_listed_by_prefix_and_range_page_by_page(
    gateway: RunningGateway, copies: OneProcess
) -> None:
    names = ["a-1", "a-2", "a-3", "b-1", "b-2"]
    copies.write("customers", *((name, "{}") for name in names))

    def listed(**query: Any) -> tuple[list[str], str | None]:
        answer = gateway.client.get(ROWS, params=query)
        assert answer.status_code == 200, answer.text
        return [row["key"] for row in answer.json()["rows"]], answer.json()["next"]

    assert listed() == (names, None)
    assert listed(prefix="a-") == (names[:3], None)
    assert listed(**{"from": "a-2", "to": "b-2"}) == (["a-2", "a-3", "b-1"], None)
    assert listed(prefix="a-", limit=2) == (["a-1", "a-2"], "a-2")
    assert listed(prefix="a-", limit=2, after="a-2") == (["a-3"], None)


def test_windows_of_a_group_are_listed_by_time(gateway: RunningGateway, copies: OneProcess) -> None:
    keys = [window_key("DE", nth * HOUR_MS) for nth in range(4)] + [window_key("DE@x", HOUR_MS)]
    copies.write("customers", *((key, "{}") for key in keys))
    times = {"from": "1970-01-01T01:00:00Z", "to": "1970-01-01T03:00:00+00:00"}
    answer = gateway.client.get(f"{ROWS}/DE", params=times).json()
    assert [row["key"] for row in answer["rows"]] == keys[1:3]


def test_what_cannot_be_asked_is_refused(gateway: RunningGateway) -> None:
    for query in (
        {"prefx": "a"},
        {"limit": "0"},
        {"limit": "1001"},
        {"max_age": "soon"},
        {"since": "-1"},
        {"at_least": "x"},
    ):
        assert code(gateway.client.get(ROWS, params=query)) == (400, "bad_query"), query
    for raw in ("prefix=%C3", "from=a%FF", "%C3=1"):
        assert code(gateway.client.get(f"{ROWS}?{raw}")) == (400, "bad_query"), raw
    for text in ("yesterday", "2026-11-22T10:00:00"):
        asked = gateway.client.get(f"{ROWS}/DE", params={"from": text})
        assert code(asked) == (400, "bad_query")


def test_what_is_older_than_it_may_be_is_told_with_what_is_known(
    gateway: RunningGateway, copies: OneProcess
) -> None:
    copies.write("customers", ("a", '{"n":1}'))
    copies.heard["customers"].at_ms = now_ms() - 5_000
    assert gateway.client.get(f"{ROWS}/a", params={"max_age": 60}).status_code == 200
    old = gateway.client.get(f"{ROWS}/a", params={"max_age": "1.5"})
    assert code(old) == (503, "stale")
    assert old.json()["known"]["row"] == {"n": 1}
    assert old.json()["as_of"]["age_ms"] >= 5_000
    listed = gateway.client.get(ROWS, params={"max_age": 1}).json()
    assert [row["key"] for row in listed["known"]["rows"]] == ["a"]
    assert code(gateway.client.get("/v1/tables/sums/rows/a")) == (503, "table_not_ready")


def test_whoever_has_written_can_wait_for_it(gateway: RunningGateway, copies: OneProcess) -> None:
    late = threading.Timer(0.3, lambda: copies.write("customers", ("a", '{"n":1}')))
    late.start()
    answer = gateway.client.get(f"{ROWS}/a", params={"at_least": 0})
    late.join()
    assert answer.json()["row"] == {"n": 1}
    assert code(gateway.client.get(f"{ROWS}/a", params={"at_least": 7})) == (503, "stale")


def test_rows_are_shown_no_longer_than_their_retention(
    gateway: RunningGateway, copies: OneProcess
) -> None:
    copies.write("short", ("old", "{}"), at_ms=now_ms() - 61_000)
    copies.write("short", ("new", "{}"))
    path = "/v1/tables/short/rows"
    assert code(gateway.client.get(f"{path}/old")) == (404, "unknown_row")
    assert [row["key"] for row in gateway.client.get(path).json()["rows"]] == ["new"]
