"""A stream's events in a real Kafka: shown page by page, found, and waited for."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from deploy.cli.commands import app
from deploy.cli.signals import INTERRUPTED
from deploy.local.cluster import Cluster
from deploy.local.ports import pick_free
from gateway.settings import Settings
from shared.config.access import ApiKey, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.event.derived import RESTORED
from shared.event.envelope import event_headers
from shared.event.record import RecordOut
from shared.event.times import rfc3339
from shared.event.topics import stream_spec, stream_topic
from shared.runtime.clock import now_ms
from shared.runtime.kafka.lookup import stream_pages
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.setup_error import NotFoundError
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway
from tests.support.kafka.kafka_log import write_rows

pytestmark = pytest.mark.integration

STREAM = "lookedat"
COUNT, PARTITIONS = 60, 4
LARGE = 900_000


def a_key(name: str, *scopes: str, tenant: str = "default") -> tuple[ApiKey, str]:
    text = new_text(kind="secret", key_id=name, entropy=name[0].encode() * 20)
    secrets = (secret_from(text, signs=False),)
    return ApiKey(name, secrets, tenant=tenant, scopes=frozenset(scopes)), text  # type: ignore[arg-type]


READER, READS = a_key("reader", "read")
SENDER, SENDS = a_key("sender", "write")
STRANGER, ELSEWHERE = a_key("stranger", "read", tenant="others")


def an_event(name: str, *, value: bytes | None = None, key: bytes | None = None) -> RecordOut:
    raw = b'{"id": "%b"}' % name.encode() if value is None else value
    headers = event_headers(event_id=name, event_time_ms=7, accepted_at_ms=8)
    return RecordOut(stream_topic(STREAM), key, raw, headers)


def write(kafka: Cluster, *rows: RecordOut) -> None:
    def where(nth: int, row: RecordOut) -> int | None:
        return nth % PARTITIONS if row.key is None else None

    asyncio.run(write_rows(kafka.bootstrap_servers, rows, partition_of=where))


@pytest.fixture(scope="module")
def gateway(kafka: Cluster) -> Iterator[RunningGateway]:
    async def make() -> None:
        async with topic_admin(kafka.bootstrap_servers) as admin:
            await admin.create_missing([stream_spec(STREAM)])

    asyncio.run(make())
    keys = {key.id: key for key in (READER, SENDER, STRANGER)}
    config = FixedConfig(Configuration(streams={STREAM: Stream(STREAM)}, keys=keys))
    settings = Settings(auth="keys", bootstrap_servers=kafka.bootstrap_servers)
    with running_gateway(FakePublisher([]), config, settings) as running:
        # One after the other, so that the newest one is known.
        for n in range(COUNT):
            write(
                kafka, *[an_event(f"e{n}")] if n % 2 else [an_event(f"e{n}", key=b"k%d" % (n % 4))]
            )
        yield running


def ask(gateway: RunningGateway, text: str = READS, /, **query: Any) -> httpx.Response:
    return httpx.get(
        f"{gateway.url}/v1/streams/{STREAM}/events",
        params=query,
        headers={"authorization": f"Bearer {text}"},
        timeout=30,
    )


def page(gateway: RunningGateway, **query: Any) -> dict[str, Any]:
    answer = ask(gateway, **query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ids(found: dict[str, Any]) -> list[str]:
    return [event["id"] for event in found["events"]]


def test_the_newest_come_first_and_pages_go_back_to_the_beginning(gateway: RunningGateway) -> None:
    shown: list[dict[str, Any]] = []
    query: dict[str, str] = {}
    while True:
        found = page(gateway, limit=7, **query)
        shown += found["events"]
        if found["older"] is None:
            break
        query = {"before": found["older"]}
    assert sorted(event["id"] for event in shown) == sorted(f"e{n}" for n in range(COUNT))
    stored_at = [event["stored_at_ms"] for event in shown]
    assert stored_at == sorted(stored_at, reverse=True)
    first = next(event for event in shown if event["id"] == "e0")
    assert (first["data"], first["key"]) == ({"id": "e0"}, "k0")
    assert (first["event_time_ms"], first["accepted_at_ms"]) == (7, 8)


def test_they_are_found_by_id_key_and_content(gateway: RunningGateway) -> None:
    found = page(gateway, id="e17")
    assert (ids(found), found["index"]) == (["e17"], None)
    assert set(ids(page(gateway, key="k2"))) == {f"e{n}" for n in range(COUNT) if n % 4 == 2}
    assert ids(page(gateway, contains='"e3"')) == ["e3"]
    nothing = page(gateway, contains="nowhere")
    assert (nothing["events"], nothing["older"], nothing["is_complete"]) == ([], None, True)


def test_what_comes_is_waited_for_and_comes_once(gateway: RunningGateway, kafka: Cluster) -> None:
    newer = page(gateway, limit=1)["newer"]
    begun_s = time.monotonic()
    nothing = page(gateway, after=newer, wait_s=0.5)
    assert nothing["events"] == []
    assert time.monotonic() - begun_s > 0.4
    newer = nothing["newer"]
    late = threading.Timer(0.5, write, (kafka, *(an_event(f"late{n}") for n in range(6))))
    late.start()
    shown: list[str] = []
    while len(shown) < 6:
        found = page(gateway, after=newer, wait_s=20, limit=4)
        assert found["events"], "the wait found no event"
        shown, newer = shown + ids(found), found["newer"]
    late.join()
    assert sorted(shown) == [f"late{n}" for n in range(6)]
    assert page(gateway, after=newer)["events"] == []


def test_all_since_a_time_come_in_the_order_of_each_key(gateway: RunningGateway) -> None:
    shown, found = [], page(gateway, limit=9, **{"from": "2020-01-01T00:00:00Z"})
    while found["events"]:
        shown += found["events"]
        found = page(gateway, limit=9, after=found["newer"])
    assert len({event["id"] for event in shown}) == len(shown) >= COUNT
    for key in ("k0", "k2"):
        of_key = [int(event["id"][1:]) for event in shown if event["key"] == key]
        assert of_key == sorted(of_key)


def test_a_page_has_a_bound_in_bytes_whatever_is_asked_for(
    gateway: RunningGateway, kafka: Cluster
) -> None:
    newer = page(gateway, limit=1)["newer"]
    write(kafka, *(an_event(f"large{n}", value=b'"%b"' % (b"x" * LARGE)) for n in range(8)))
    for query in ({"after": newer}, {}):
        found = page(gateway, limit=1_000, contains="xxxx", **query)
        assert 0 < len(found["events"]) <= stream_pages.PAGE_BYTES_MAX // LARGE + 1
        assert found["is_complete"]
    shown, more = ids(found), found["older"]
    while more is not None and len(shown) < 8:
        found = page(gateway, limit=1_000, contains="xxxx", before=more)
        shown, more = shown + ids(found), found["older"]
    assert sorted(shown) == [f"large{n}" for n in range(8)]


def test_only_who_may_read_sees_them(gateway: RunningGateway) -> None:
    assert ask(gateway, SENDS).json()["code"] == "scope_missing"
    assert ask(gateway, ELSEWHERE).json()["code"] == "unknown_stream"
    assert ask(gateway, "hk_nobody").status_code == 401


@pytest.mark.parametrize(
    "query",
    [
        {"limit": 0},
        {"limit": 1_001},
        {"before": "1.x"},
        {"before": "1", "after": "1"},
        {"wait_s": 5},
        {"wait_s": 21, "after": "1"},
        {"contains": ""},
        {"from": "yesterday"},
        {"nope": 1},
    ],
)
def test_a_query_that_cannot_be_is_refused(gateway: RunningGateway, query: dict[str, Any]) -> None:
    answer = ask(gateway, **query)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_query")


def test_who_waits_takes_no_place_from_other_tenants(
    gateway: RunningGateway, kafka: Cluster
) -> None:
    newer = page(gateway, limit=1)["newer"]

    def wait() -> None:
        # Ask again if another request has taken the last place.
        while ask(gateway, after=newer, wait_s=15).status_code == 429:
            time.sleep(0.05)

    waiting = [threading.Thread(target=wait) for _ in range(8)]
    for each in waiting:
        each.start()
    code = "too_many_watchers"
    wait_until(lambda: ask(gateway, after=newer, wait_s=0.1).json().get("code") == code, what=code)
    # Requests that do not wait are answered.
    assert page(gateway, limit=1)["events"]
    write(kafka, an_event("at last"))
    for each in waiting:
        each.join()
    assert ask(gateway, after=newer, wait_s=0.1).status_code == 200


def test_a_tenant_who_waits_reads_the_log_once_at_a_time(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading: list[int] = []
    since, under_way = stream_pages.StreamPages.since, []

    async def watched(*args: Any, **more: Any) -> stream_pages.StreamPage:
        under_way.append(1)
        reading.append(len(under_way))
        try:
            await asyncio.sleep(0.1)
            return await since(*args, **more)
        finally:
            under_way.pop()

    monkeypatch.setattr(stream_pages.StreamPages, "since", watched)
    query = {"from": "2020-01-01T00:00:00Z", "contains": "nowhere", "wait_s": 0.1}
    asking = [threading.Thread(target=ask, args=(gateway,), kwargs=query) for _ in range(4)]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    assert reading == [1] * 4


def test_who_leaves_gives_their_place_up_at_once(gateway: RunningGateway) -> None:
    newer = page(gateway, limit=1)["newer"]
    request = (
        f"GET /v1/streams/{STREAM}/events?after={newer}&wait_s=20 HTTP/1.1\r\nhost: h\r\n"
        f"authorization: Bearer {READS}\r\n\r\n"
    )
    for _ in range(4):
        leaving = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(8)]
        for each in leaving:
            each.sendall(request.encode())
        wait_until(
            lambda: ask(gateway, after=newer, wait_s=0.1).status_code == 429,
            what="all places are taken",
        )
        for each in leaving:
            each.close()
        wait_until(
            lambda: ask(gateway, after=newer, wait_s=0.1).status_code == 200,
            what="a place is free",
            timeout_s=15,
        )


def hifi(gateway: RunningGateway, *arguments: str) -> Result:
    environ = {"HIFI_GATEWAY": gateway.url, "HIFI_API_KEY": READS}
    return CliRunner().invoke(app, list(arguments), env=environ)


def test_the_command_lists_gets_and_follows_them(gateway: RunningGateway, kafka: Cluster) -> None:
    start = rfc3339(now_ms())
    exact = b'{"id": "exact", "n": 1.00,\n "big": 12345678901234567890123}'
    write(kafka, an_event("exact", value=exact, key=b"as sent"), an_event("then"))
    listed = hifi(gateway, "events", "list", STREAM, "--limit", "2")
    lines = {line.split("  ")[2]: line for line in listed.stdout.splitlines()}
    assert set(lines) == {"exact", "then"}
    assert "key=as sent" in lines["exact"]
    assert "There are older ones: --before " in listed.stderr
    # Byte for byte, except that a line break cannot be part of a line.
    found = hifi(gateway, "events", "list", STREAM, "--key", "as sent", "--json")
    assert exact.replace(b"\n", b" ").decode() in found.stdout
    got = hifi(gateway, "events", "get", STREAM, "e17")
    assert json.loads(got.stdout)["data"] == {"id": "e17"}
    write(kafka, an_event("bytes", value=b"\xff\x00"))
    got = hifi(gateway, "events", "get", STREAM, "bytes")
    assert json.loads(got.stdout)["data_base64"] == "/wA="
    assert "data" not in json.loads(got.stdout)
    missing = hifi(gateway, "events", "get", STREAM, "nobody")
    assert isinstance(missing.exception, NotFoundError)
    followed = hifi(gateway, "events", "tail", STREAM, "--from", start, "--count", "3", "--json")
    came = {json.loads(line)["id"] for line in followed.stdout.splitlines()}
    assert came == {"exact", "then", "bytes"}


def test_who_follows_until_ctrl_c_ends_with_its_code(gateway: RunningGateway) -> None:
    environ = {**os.environ, "HIFI_GATEWAY": gateway.url, "HIFI_API_KEY": READS}
    command = [sys.executable, "-m", "deploy.cli.app", "tail", STREAM]
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as following:
        assert following.stderr is not None
        assert "Ctrl-C stops" in following.stderr.readline()
        following.send_signal(signal.SIGINT)
        assert following.wait(30) == INTERRUPTED
        assert not following.stderr.read()


def test_what_a_restore_has_put_back_says_so(gateway: RunningGateway, kafka: Cluster) -> None:
    row = an_event("back")
    write(kafka, replace(row, headers=(*row.headers, (RESTORED, b"spring"))), an_event("new"))
    by_id = {event["id"]: event for event in page(gateway, limit=2)["events"]}
    assert by_id["back"]["restored_by"] == "spring"
    assert "restored_by" not in by_id["new"]
    lines = hifi(gateway, "events", "list", STREAM, "--limit", "2").stdout.splitlines()
    said = {line.split("  ")[2]: "  restored by spring  " in line for line in lines}
    assert said == {"back": True, "new": False}
    got = json.loads(hifi(gateway, "events", "get", STREAM, "back").stdout)
    assert got["restored_by"] == "spring"
    assert "restored_by" not in json.loads(hifi(gateway, "events", "get", STREAM, "new").stdout)


def test_they_are_sent_on_to_who_develops_a_receiver(
    gateway: RunningGateway, kafka: Cluster
) -> None:
    start = rfc3339(now_ms())
    write(kafka, *(an_event(f"on{n}") for n in range(5)))
    taken: list[tuple[dict[str, str], bytes]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            taken.append(({name.lower(): text for name, text in self.headers.items()}, body))
            self.send_response(200 if len(taken) > 1 else 422)
            self.send_header("content-length", "4")
            self.end_headers()
            self.wfile.write(b"why?")

        def log_message(self, *_: object) -> None:
            pass

    (port,) = pick_free(1)
    to = f"http://127.0.0.1:{port}/in"
    environ = {**os.environ, "HIFI_GATEWAY": gateway.url, "HIFI_API_KEY": READS}
    command = ["listen", STREAM, "--forward-to", to, "--batch", "2", "--from", start]
    with subprocess.Popen(
        [sys.executable, "-m", "deploy.cli.app", *command],
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
    ) as listening:
        assert listening.stderr is not None
        # The command waits for a receiver that does not exist yet.
        assert "does not answer" in listening.stderr.readline()
        with ThreadingHTTPServer(("127.0.0.1", port), Receiver) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            wait_until(lambda: len(taken) >= 3, what="all events have been forwarded")
            server.shutdown()
        listening.send_signal(signal.SIGINT)
        said = listening.stderr.read()
        assert listening.wait(30) == INTERRUPTED
    arrived = [event["id"] for _, body in taken for event in json.loads(body)]
    assert sorted(arrived) == [f"on{n}" for n in range(5)]
    headers, _ = taken[0]
    assert (headers["hifi-stream"], headers["hifi-events"]) == (STREAM, "2")
    assert headers["webhook-id"].startswith("msg_")
    # The output quotes the receiver's refusal; refused events are not sent again.
    assert "422  2 events" in said
    assert "why?" in said


def test_how_the_events_lie_is_told_to_who_may_see_them(gateway: RunningGateway) -> None:
    def told(text: str) -> httpx.Response:
        return httpx.get(
            f"{gateway.url}/v1/streams/{STREAM}/spread",
            headers={"authorization": f"Bearer {text}"},
            timeout=30,
        )

    found = told(READS).json()
    assert len(found["partitions"]) == PARTITIONS
    # There are too few events to judge.
    assert found["hot"] is None
    assert found["looked_at"] == max(found["partitions"]) > 0
    assert all(0.1 <= each["part"] <= 1 for each in found["keys"])
    assert told(SENDS).status_code == 403
    assert told(ELSEWHERE).status_code == 404
