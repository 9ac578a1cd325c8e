"""A row is changed only if it is in the state that its writer names, at every gateway."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from gateway.intake.events import Event
from gateway.publish.report import Fate, Report
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway
from tests.support.gateway.table_fixtures import (
    ROWS,
    TABLES,
    OneProcess,
    table_config,
    table_gateway,
    written_copies,
)

TOPIC = TABLES["customers"].topic
Gateways = Sequence[RunningGateway]


class FollowedKafka(FakePublisher):
    """Kafka with one partition, whose records reach the copies a moment later."""

    def __init__(self, copies: OneProcess) -> None:
        super().__init__([table.topic for table in TABLES.values()])
        self._copies = copies
        self._turn_of_one = threading.Lock()
        self._follower = ThreadPoolExecutor(1)
        self.is_followed = True
        self.is_judged, self.may_store = threading.Event(), threading.Event()
        self.may_store.set()

    async def publish(self, topic: str, events: Sequence[Event]) -> Sequence[Report]:
        if topic != TOPIC or any(event.id in self.fates for event in events):
            return await super().publish(topic, events)
        if any(event.value for event in events):
            self.is_judged.set()
            await asyncio.to_thread(self.may_store.wait, 10)
        with self._turn_of_one:
            log = self.logs[topic][0]
            report = Report(Fate.STORED, range(len(events)), 0, len(log))
            log.extend(events)
            rows = [((event.key or b"").decode(), event.value.decode()) for event in events]
            if self.is_followed:
                self._follower.submit(self._copies.write, "customers", *rows)
        return [report]


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[OneProcess]:
    with written_copies(tmp_path) as found:
        yield found


@pytest.fixture
def publisher(copies: OneProcess) -> FollowedKafka:
    return FollowedKafka(copies)


@pytest.fixture
def gateways(publisher: FollowedKafka, copies: OneProcess) -> Iterator[Gateways]:
    with ExitStack() as open_ones:
        config = table_config()
        yield [open_ones.enter_context(table_gateway(publisher, config, copies)) for _ in range(2)]


def put(gateway: RunningGateway, row: object, key: str = "a", **conditions: str) -> httpx.Response:
    headers = {name.replace("_", "-"): value for name, value in conditions.items()}
    return gateway.client.put(f"{ROWS}/{key}", json=row, headers=headers)


def outcome(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("code", "")


CHANGED = (412, "changed_meanwhile")
STORED = (200, "")


def test_a_row_is_changed_by_who_has_seen_it_last(gateways: Gateways) -> None:
    one, other = gateways
    assert outcome(put(one, {"n": 1}, if_match="*")) == CHANGED
    made = put(one, {"n": 1}, if_none_match="*")
    assert outcome(made) == STORED
    refused = put(other, {"n": 0}, if_none_match="*")
    tag = f'"{made.json()["offset"]}"'
    assert outcome(refused) == CHANGED
    assert (refused.json()["etag"], refused.headers["etag"]) == (tag, tag)
    changed = put(other, {"n": 2}, if_match=f'"77", {tag}')
    assert outcome(changed) == STORED
    # An outdated or weak tag neither changes nor deletes the row.
    now = f'"{changed.json()["offset"]}"'
    for condition in ({"if_match": tag}, {"if_match": f"W/{now}"}, {"if_none_match": f"W/{now}"}):
        assert outcome(put(one, {"n": 3}, **condition)) == CHANGED, condition
    deletion = one.client.delete(f"{ROWS}/a", headers={"if-match": tag})
    assert outcome(deletion) == CHANGED
    assert one.client.get(f"{ROWS}/a").json()["row"] == {"n": 2}
    assert outcome(one.client.delete(f"{ROWS}/a", headers={"if-match": now})) == STORED
    assert outcome(put(other, {"n": 4}, if_none_match="*")) == STORED


def test_of_two_who_change_what_both_have_seen_one_does(
    gateways: Gateways, publisher: FollowedKafka
) -> None:
    one, other = gateways
    tag = f'"{put(one, {"n": 0}).json()["offset"]}"'
    publisher.is_judged.clear()
    publisher.may_store.clear()
    with ThreadPoolExecutor() as threads:
        first = threads.submit(put, one, {"n": 1}, if_match=tag)
        assert publisher.is_judged.wait(10)
        assert outcome(put(other, {"n": 2}, if_match=tag)) == (503, "not_stored")
        publisher.may_store.set()
        assert outcome(first.result()) == STORED
    assert outcome(put(other, {"n": 2}, if_match=tag)) == CHANGED
    assert one.client.get(f"{ROWS}/a").json()["row"] == {"n": 1}


def test_of_what_is_behind_nothing_is_said(gateways: Gateways, publisher: FollowedKafka) -> None:
    assert outcome(put(gateways[0], {}, if_none_match="*")) == STORED
    publisher.is_followed = False
    assert outcome(put(gateways[1], {"n": 1}, if_match="*")) == (503, "stale")
    bare = gateways[0].client.put("/v1/tables/bare/rows/a", json={}, headers={"if-match": "*"})
    assert outcome(bare) == (503, "table_not_ready")


def test_whose_row_may_still_come_keeps_others_out(
    gateways: Gateways, publisher: FollowedKafka
) -> None:
    publisher.fates = {"a": Fate.UNKNOWN}
    assert outcome(put(gateways[0], {}, if_none_match="*")) == (504, "outcome_unknown")
    publisher.fates = {}
    assert outcome(put(gateways[1], {}, if_none_match="*")) == (503, "not_stored")
    publisher.fates = {"": Fate.NOT_STORED}
    assert outcome(put(gateways[1], {}, key="b", if_none_match="*")) == (503, "not_stored")
    publisher.fates = {}
    assert outcome(put(gateways[1], {}, key="b", if_none_match="*")) == STORED


def test_a_condition_is_for_one_row(gateways: Gateways) -> None:
    lines = '{"key":"a","row":{}}'
    answer = gateways[0].client.post(ROWS, content=lines, headers={"if-match": "*"})
    assert outcome(answer) == (400, "bad_header")
