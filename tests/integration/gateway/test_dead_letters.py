"""Dead letters in a real Kafka: read, exported, and resent exactly once, whatever breaks."""

import asyncio
import json
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from deploy.cli.commands import app
from deploy.local.cluster import Cluster
from gateway.control.stores import redrive
from gateway.control.stores.redrive import (
    KafkaDeadLetters,
    Redriven,
    Survey,
    open_dead_letters,
)
from shared.event.envelope import Envelope, History, MalformedRecord
from shared.event.record import Origin, RecordIn, RecordOut
from shared.event.topics import RECEIPTS, fixed_specs, retry_topic, stream_topic
from shared.retry import dead_letter
from shared.retry.dead_letter import DeadLetterFilter, Letter, Place
from shared.retry.decision import DeadLetter
from shared.retry.routing import route, route_malformed
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.lookup import letter_blocks
from shared.runtime.kafka.only_writer import OvertakenError
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway, config_with, running_gateway
from tests.support.kafka.kafka_log import read_all, write_rows

pytestmark = pytest.mark.integration

SCHEDULE = RetrySchedule()
# Three readers hold this much of the log at once; a page of 150 letters alone would be 150 MB.
MEMORY_BYTES_MAX = 100_000_000


def a_dead_letter(stream: str, number: int, *, reason: str = "status_400") -> RecordOut:
    """Return the record that delivery writes about an event that it gave up."""
    envelope = Envelope(
        origin=Origin(stream_topic(stream), 0, number),
        value=b'{"id": "e%d"}' % number,
        key=None,
        stream=stream,
        event_id=f"e{number}",
        event_time_ms=now_ms(),
        accepted_at_ms=now_ms(),
    )
    history = History.fresh(now_ms=now_ms(), deadline_s=SCHEDULE.deadline_s)
    return route(DeadLetter(reason, history), envelope, f"{stream}/to", now_ms=now_ms())


def write(cluster: Cluster, rows: Iterable[RecordOut]) -> None:
    async def run() -> None:
        tiers = [tier.name for tier in SCHEDULE.tiers]
        async with topic_admin(cluster.bootstrap_servers) as admin:
            await admin.create_missing(fixed_specs(tiers))
        await write_rows(cluster.bootstrap_servers, rows)

    asyncio.run(run())


def committed(cluster: Cluster, topic: str, stream: str) -> list[bytes]:
    """Return a topic's values about a stream, as a reader of committed records sees them."""
    found = asyncio.run(read_all(cluster.bootstrap_servers, topic))
    return [one.value for one in found if is_about(one, stream)]


def is_about(record: Any, stream: str) -> bool:
    return bool(
        dict(record.headers).get("stream") == stream.encode() or f'"{stream}/to"' in str(record)
    )


def do_redrive(
    cluster: Cluster, wanted: DeadLetterFilter, **more: Any
) -> Coroutine[Any, Any, Redriven]:
    given: dict[str, Any] = {"rate_per_s": 1e6, "redrive_id": "r", **more}
    return letters_of(cluster).redrive(wanted, **given)


def letters_of(cluster: Cluster) -> KafkaDeadLetters:
    return KafkaDeadLetters(cluster.bootstrap_servers, schedule=SCHEDULE)


def ids(values: Sequence[bytes]) -> Counter[str]:
    return Counter(json.loads(value)["id"] for value in values)


def test_what_is_asked_for_is_found_page_by_page(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(kafka, [a_dead_letter("paged", n, reason=f"status_{400 + n % 2}") for n in range(25)])

    async def read() -> tuple[list[str], int, set[Place]]:
        wanted = DeadLetterFilter(stream="paged", reason="status_401")
        found, pages, places = [], 0, set()
        async with open_dead_letters(kafka.bootstrap_servers) as letters:
            async for page in letters.pages(wanted, count_max=5):
                pages += 1
                found += [one.event_id for one in page.letters]
                places |= {one.place for one in page.letters}
            (first,) = (await letters.page(wanted, after=min(places), count_max=1)).letters
            assert (first.place, first.event_id) == (min(places), found[0])
            assert (await letters.page(wanted, after=Place(99, 0), count_max=1)).letters == ()
            later = DeadLetterFilter(stream="paged", from_ms=now_ms() + 3_600_000)
            assert (await letters.page(later, count_max=5)).letters == ()
            monkeypatch.setattr(redrive, "SCAN_MAX", 3)
            looked = await letters.page(DeadLetterFilter(stream="nobodys"), count_max=5)
            assert (looked.letters, looked.next is not None) == ((), True)
            # A search does not look through letters that are newer than its filter asks for.
            early = DeadLetterFilter(stream="nobodys", to_ms=1)
            assert (await letters.page(early, count_max=5)).next is None
        return found, pages, places

    found, pages, places = asyncio.run(read())
    assert Counter(found) == Counter(f"e{n}" for n in range(1, 25, 2))
    assert (pages, len(places)) == (3, 12)


def test_twice_does_nothing_twice(kafka: Cluster) -> None:
    write(kafka, [a_dead_letter("twice", n) for n in range(250)])
    wanted = DeadLetterFilter(stream="twice")
    counted = asyncio.run(letters_of(kafka).survey(wanted))
    assert counted.counts == Redriven(count=250)
    assert committed(kafka, retry_topic("30s", is_parked=True), "twice") == []
    some = asyncio.run(do_redrive(kafka, wanted, count_max=40))
    assert some.count == 40
    assert some.next is not None
    assert asyncio.run(do_redrive(kafka, wanted)) == Redriven(count=210, already=40)
    assert asyncio.run(do_redrive(kafka, wanted)) == Redriven(already=250)
    assert ids(committed(kafka, retry_topic("30s", is_parked=True), "twice")) == Counter(
        f"e{n}" for n in range(250)
    )
    told = [json.loads(value) for value in committed(kafka, RECEIPTS, "twice")]
    assert sum(one["event_count"] for one in told) == 250


def test_two_at_once_send_each_once(kafka: Cluster) -> None:
    write(kafka, [a_dead_letter("race", n) for n in range(300)])

    async def race() -> list[Redriven | BaseException]:
        racers = [
            do_redrive(kafka, DeadLetterFilter(stream="race"), rate_per_s=2_000) for _ in range(3)
        ]
        return await asyncio.gather(*racers, return_exceptions=True)

    ended = asyncio.run(race())
    # A request that was overtaken says so in a sentence; at least one continues to the end.
    assert [one for one in ended if not isinstance(one, Redriven | OvertakenError)] == []
    assert any(isinstance(one, Redriven) for one in ended)
    asyncio.run(do_redrive(kafka, DeadLetterFilter(stream="race")))
    assert ids(committed(kafka, retry_topic("30s", is_parked=True), "race")) == Counter(
        f"e{n}" for n in range(300)
    )


KILLED = """
import asyncio, os, signal, sys
from aiokafka import AIOKafkaProducer
from gateway.control.stores.redrive import KafkaDeadLetters
from shared.retry.dead_letter import DeadLetterFilter
from shared.retry.schedule import RetrySchedule

# A chunk of 100 is 201 records: this is in the midst of the second one.
LAST = 300
send, sent = AIOKafkaProducer.send, []

async def dying(producer, *record, **named):
    sent.append(await send(producer, *record, **named))
    if len(sent) == LAST:
        await asyncio.gather(*sent)
        os.kill(os.getpid(), signal.SIGKILL)
    return sent[-1]

AIOKafkaProducer.send = dying
letters = KafkaDeadLetters(sys.argv[1], schedule=RetrySchedule())
asyncio.run(letters.redrive(DeadLetterFilter(stream="killed"), redrive_id="k", rate_per_s=1e6))
"""


def test_a_kill_between_writing_and_marking_sends_nothing_twice(kafka: Cluster) -> None:
    """Half of the second chunk is in Kafka, as records that were never committed."""
    write(kafka, [a_dead_letter("killed", n) for n in range(300)])
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, kafka.bootstrap_servers], check=False, timeout=60
    )
    assert killed.returncode == -9
    first = ids(committed(kafka, retry_topic("30s", is_parked=True), "killed"))
    assert 0 < len(first) < 300
    again = asyncio.run(do_redrive(kafka, DeadLetterFilter(stream="killed")))
    assert again == Redriven(count=300 - len(first), already=len(first))
    assert ids(committed(kafka, retry_topic("30s", is_parked=True), "killed")) == Counter(
        f"e{n}" for n in range(300)
    )


def test_a_rate_is_kept_and_a_time_limit_ends_in_between(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(kafka, [a_dead_letter("slowly", n) for n in range(30)])
    monkeypatch.setattr(redrive, "REDRIVE_S_MAX", 1.5)
    done = asyncio.run(do_redrive(kafka, DeadLetterFilter(stream="slowly"), rate_per_s=10))
    # Ten at a time, a second apart.
    assert done.count in {10, 20}
    assert done.next is not None


def test_a_survey_shows_the_newest_and_counts_the_rest(kafka: Cluster) -> None:
    stream, other = "surveyed", "surveyed-others"
    letters = [a_dead_letter(stream, number) for number in range(120)]
    letters += [a_dead_letter(stream, 500, reason="deadline")]
    write(kafka, [a_dead_letter(other, 1)])
    write(kafka, letters)

    async def look(reason: str | None = None, *, streams: tuple[str, ...] = (stream,)) -> Survey:
        wanted = DeadLetterFilter(reason=reason, sees=frozenset(streams).__contains__)
        return await letters_of(kafka).survey(wanted, newest_max=100)

    every = asyncio.run(look())
    assert (every.counts, every.streams) == (Redriven(count=121), {stream: 121})
    assert len(every.newest) == 100
    assert {letter.stream for letter in every.newest} == {stream}
    times = [letter.dead_at_ms for letter in every.newest]
    assert times == sorted(times, reverse=True)
    assert asyncio.run(look("status_4*")).counts == Redriven(count=120)
    wanted = DeadLetterFilter(stream=stream, reason="status_4*")
    assert asyncio.run(do_redrive(kafka, wanted)).count == 120
    left = asyncio.run(look())
    assert left.counts == Redriven(count=1, already=120)
    # Letters that the caller may not see are neither shown nor sent.
    nothing = DeadLetterFilter(stream=other, sees=frozenset({stream}).__contains__)
    assert asyncio.run(do_redrive(kafka, nothing)) == Redriven()
    assert asyncio.run(look(streams=(other,))).counts == Redriven(count=1)


@pytest.mark.parametrize("count", [150, pytest.param(1_000, marks=pytest.mark.long)])
def test_letters_of_a_megabyte_each_fill_no_memory_and_hold_up_nobody(
    kafka: Cluster, count: int
) -> None:
    stream, other = f"large-{count}", f"small-{count}"
    value = b'"%b"' % (b"x" * 999_998)
    write(kafka, (replace(a_dead_letter(stream, n), value=value) for n in range(count)))
    write(kafka, [a_dead_letter(other, 1)])
    large, small = DeadLetterFilter(stream=stream), DeadLetterFilter(stream=other)

    async def look() -> None:
        letters = letters_of(kafka)

        async def listed(*, keeps_values: bool) -> int:
            found, after = 0, None
            while found == 0 or (after is not None and not keeps_values):
                page, _ = await letters.page(
                    large, after=after, count_max=1_000, keeps_values=keeps_values
                )
                found, after = found + len(page.letters), page.next
            return found

        tracemalloc.start()
        try:
            all_of_them, some, mine = await asyncio.gather(
                listed(keeps_values=False),
                listed(keeps_values=True),
                letters.page(small, after=None, count_max=10, keeps_values=True),
            )
            assert (all_of_them, some) == (count, 4)
            assert [letter.event_id for letter in mine[0].letters] == ["e1"]
            assert len((await letters.survey(large, newest_max=1_000)).newest) == count
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < MEMORY_BYTES_MAX, f"{most / 1e6:.0f} MB"

    asyncio.run(look())


@pytest.fixture
def gateway(kafka: Cluster) -> Iterator[RunningGateway]:
    """Run a gateway over the dead letters of the real Kafka."""
    letters = letters_of(kafka)
    config = config_with("cli")
    with running_gateway(FakePublisher([]), config, dead_letters=letters) as running:
        yield running


def test_the_many_letters_of_another_stream_are_read_past_once(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_blocks, "BLOCK", 20)
    monkeypatch.setattr(letter_blocks, "SKIPPED_MIN", 2)
    many = [a_dead_letter("many", n) for n in range(1_000)]
    write(kafka, [a_dead_letter("few", 1), *many, a_dead_letter("few", 2)])
    opened: list[str] = []

    def open_letter(record: RecordIn, *, keeps_value: bool = True) -> Letter:
        letter = dead_letter.open_letter(record, keeps_value=keeps_value)
        opened.append(letter.stream)
        return letter

    monkeypatch.setattr(redrive, "open_letter", open_letter)
    letters = letters_of(kafka)

    def look(stream: str) -> tuple[int, int]:
        opened.clear()
        surveyed = asyncio.run(letters.survey(DeadLetterFilter(stream=stream), newest_max=5))
        return surveyed.counts.count, opened.count("many")

    assert look("few") == (2, 1_000)
    count, of_others = look("few")
    assert (count, of_others < 100) == (2, True)
    assert look("many")[0] == 1_000
    write(kafka, [a_dead_letter("few", 3)])
    assert look("few")[0] == 3


def test_the_command_lists_exports_asks_and_sends_again(
    kafka: Cluster, gateway: RunningGateway
) -> None:
    record = RecordIn(Origin(retry_topic("30s"), 0, 4), 0, b"k", b"?", (("stream", b"cli"),))
    unreadable = route_malformed(MalformedRecord(record, "header v is missing"), now_ms=now_ms())
    write(kafka, [*(a_dead_letter("cli", n) for n in range(3)), unreadable])

    def hifi(*arguments: str, answer: str = "") -> Result:
        env = {"HIFI_GATEWAY": gateway.url}
        return CliRunner().invoke(app, ["dead", *arguments], env=env, input=answer)

    listed = json.loads(hifi("list", "--stream", "cli", "--json").stdout)
    assert [one["id"] for one in listed["dead_letters"] if one["id"]] == ["e0", "e1", "e2"]
    assert listed["is_all"] is True
    place = next(one["place"] for one in listed["dead_letters"] if one["id"] == "e1")
    assert json.loads(hifi("show", place).stdout)["data"] == {"id": "e1"}
    assert "no dead letter at" in str(hifi("show", "0:999999").exception)
    exported = hifi("export", "--stream", "cli", "--reason", "status_4*", "--from", "1h").stdout
    assert {json.loads(line)["data"]["id"] for line in exported.splitlines()} == {"e0", "e1", "e2"}
    others = hifi("list", "--stream", "cli", "--answer", "never said", "--json").stdout
    assert json.loads(others)["dead_letters"] == []
    dry = hifi("redrive", "--stream", "cli", "--dry-run", "--json")
    assert json.loads(dry.stdout) == {
        "redrive_id": None,
        "count": 3,
        "already": 0,
        "malformed": 1,
    }
    assert hifi("redrive", "--stream", "cli", answer="n\n").exit_code == 1
    assert committed(kafka, retry_topic("30s", is_parked=True), "cli") == []
    sent = json.loads(hifi("redrive", "--stream", "cli", "--yes", "--json").stdout)
    assert (sent["count"], sent["malformed"]) == (3, 1)
    assert "sent again" in hifi("list", "--stream", "cli").stdout
    assert len(committed(kafka, retry_topic("30s", is_parked=True), "cli")) == 3
    assert "neither like" in hifi("list", "--from", "yesterday").stderr
