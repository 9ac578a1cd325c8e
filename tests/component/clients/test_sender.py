"""A sender reports each event's true fate, from a real gateway over HTTP with Kafka in memory."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

import msgspec
import pytest

from gateway.publish.report import Fate as Reported
from gateway.settings import Settings
from hifi_client import (
    AsyncSender,
    ClosedError,
    Fate,
    FullError,
    GatewayError,
    NotAnEventError,
    Outcome,
    Sender,
    SetupError,
)
from shared.event.topics import stream_topic
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.client_gateways import KEY, SIGNS, STREAM, WAIT_S, stored
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway, config_with, running_gateway
from tests.support.servers.scripted_destination import (
    Reply,
    Request,
    ScriptedDestination,
    scripted_destination,
)


@contextmanager
def scripted(*replies: Reply) -> Iterator[ScriptedDestination]:
    """Start a server that gives each reply once, and then repeats the last one."""

    def answer(number: int, _: Request) -> Reply:
        return replies[min(number, len(replies) - 1)]

    with scripted_destination(answer) as destination:
        yield destination


def taken(count: int) -> Reply:
    return Reply(200, body=b'{"request_id":"r","accepted":%d,"rejected":0}' % count)


def test_two_lines_send(publisher: FakePublisher, gateway: RunningGateway) -> None:
    hifi = Sender(gateway.url, "orders")
    hifi.send({"id": "a", "price": 5})
    assert hifi.flush(WAIT_S)
    hifi.close()
    assert [event.value for event in publisher.stored(stream_topic(STREAM))] == [
        b'{"id":"a","price":5}'
    ]


def test_a_sender_writes_json_with_what_it_is_given(
    publisher: FakePublisher, gateway: RunningGateway
) -> None:
    with Sender(gateway.url, "orders", encode=msgspec.json.encode) as hifi:
        hifi.send({"id": "a", "of": date(2026, 1, 2)})
    assert [event.value for event in publisher.stored(stream_topic(STREAM))] == [
        b'{"id":"a","of":"2026-01-02"}'
    ]


@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
@pytest.mark.parametrize("is_signing", [False, True])
def test_batches_go_by_count_and_each_event_is_accepted(
    publisher: FakePublisher,
    gateway: RunningGateway,
    *,
    compression: str | None,
    is_signing: bool,
) -> None:
    # With a shorter linger, a busy machine would send half-full batches.
    options: dict[str, Any] = {"compression": compression, "linger_s": 600}
    options |= {"key": "a key", "is_signing": is_signing}
    with Sender(gateway.url, "orders", batch_count_max=100, **options) as hifi:
        sent = [hifi.send({"n": n, "text": f"{n} " * 20}) for n in range(1_050)]
        assert hifi.flush(WAIT_S)
        assert {one.wait(WAIT_S).fate for one in sent} == {Fate.ACCEPTED}
    assert stored(publisher) == sorted(one.id for one in sent)
    assert gateway.sample("hifi_gateway_requests_total", route="events", status="200") == 11


def test_a_batch_goes_when_it_has_its_bytes_and_when_it_is_old_enough(
    gateway: RunningGateway,
) -> None:
    with Sender(gateway.url, "orders", batch_bytes_max=1_000, linger_s=600) as hifi:
        first, second = (hifi.send({"text": "x" * 600}) for _ in range(2))
        assert first.wait(WAIT_S).is_yes
        assert second.outcome is None
        assert hifi.flush(WAIT_S)
        assert second.wait(0).is_yes
    with Sender(gateway.url, "orders", linger_s=0.3) as hifi:
        begun_s = time.monotonic()
        assert hifi.send({"n": 1}).wait(WAIT_S).is_yes
        assert time.monotonic() - begun_s >= 0.3


def test_one_wrong_event_does_not_spoil_the_others(
    publisher: FakePublisher, gateway: RunningGateway
) -> None:
    told: list[Outcome] = []
    with Sender(gateway.url, "orders", on_outcome=told.append) as hifi:
        sent = [hifi.send({"id": each, "price": price}) for each, price in (("a", 1), ("b", "x"))]
        outcomes = [one.wait(WAIT_S) for one in sent]
    assert [each.fate for each in outcomes] == [Fate.ACCEPTED, Fate.REJECTED]
    assert (outcomes[1].code, outcomes[1].pointer) == ("schema_violation", "/1/price")
    assert outcomes[1].reason
    assert stored(publisher) == ["a"]
    assert sorted((each.id, each.fate) for each in told) == [
        ("a", Fate.ACCEPTED),
        ("b", Fate.REJECTED),
    ]


def test_what_was_not_stored_or_may_not_be_is_sent_again_with_the_same_ids(
    publisher: FakePublisher, gateway: RunningGateway
) -> None:
    publisher.fates = {"b": Reported.NOT_STORED, "c": Reported.UNKNOWN}
    with Sender(gateway.url, "orders") as hifi:
        sent = [hifi.send({"id": each}) for each in "abc"]
        assert sent[0].wait(WAIT_S).fate is Fate.ACCEPTED
        wait_until(lambda: bool(hifi.problem), what="the sender has a problem")
        assert "504 outcome_unknown" in hifi.problem
        assert sent[1].outcome is None
        publisher.fates = {}
        assert {one.wait(WAIT_S).fate for one in sent} == {Fate.ACCEPTED}
        assert hifi.problem == ""
    assert stored(publisher) == ["a", "b", "c"]


def test_time_that_is_up_is_told_with_what_is_known(
    publisher: FakePublisher, gateway: RunningGateway
) -> None:
    publisher.fates = {"b": Reported.NOT_STORED, "c": Reported.UNKNOWN}
    for name, fate in (("b", Fate.NOT_STORED), ("c", Fate.UNKNOWN)):
        with Sender(gateway.url, "orders", give_up_s=0.5) as hifi:
            assert hifi.send({"id": name}).wait(WAIT_S).fate is fate


def test_a_body_that_is_too_large_is_halved(publisher: FakePublisher) -> None:
    settings = Settings(auth="off", body_bytes_max=2_000)
    with (
        running_gateway(publisher, config_with("orders"), settings) as gateway,
        Sender(gateway.url, "orders") as hifi,
    ):
        sent = [hifi.send({"text": "x" * 900}) for _ in range(10)]
        large = hifi.send({"text": "x" * 3_000})
        assert {one.wait(WAIT_S).fate for one in sent} == {Fate.ACCEPTED}
        assert (large.wait(WAIT_S).fate, large.wait(0).code) == (Fate.REJECTED, "body_too_large")
    assert stored(publisher) == sorted(one.id for one in sent)


def test_full_memory_stops_the_sender_and_loses_nothing(
    publisher: FakePublisher, gateway: RunningGateway
) -> None:
    publisher.hold()
    with Sender(gateway.url, "orders", memory_bytes_max=10_000, linger_s=0) as hifi:
        ids = []
        with pytest.raises(FullError, match="Memory is full"):
            ids += [hifi.send_within(0.05, {"text": "x" * 100}).id for _ in range(1_000)]
        blocked = threading.Thread(target=hifi.send, args=({"id": "late"},))
        blocked.start()
        blocked.join(0.1)
        assert blocked.is_alive()
        publisher.release()
        blocked.join(WAIT_S)
        assert hifi.flush(WAIT_S)
    assert "late" in stored(publisher)
    publisher.hold()
    with Sender(gateway.url, "orders", memory_bytes_max=300, when_full="raise") as hifi:
        hifi.send({"text": "x" * 200})
        with pytest.raises(FullError):
            hifi.send({"text": "x" * 200})
        publisher.release()


def test_keys_are_sent_and_those_that_must_sign_sign(
    locked: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Sender(locked.url, "orders", key=SIGNS, is_signing=True, compression="gzip") as hifi:
        hifi.check()
        assert hifi.send({"text": "x" * 2_000}).wait(WAIT_S).is_yes
    monkeypatch.setenv("HIFI_API_KEY", KEY)
    with Sender(locked.url, "orders") as hifi:
        assert hifi.send({"n": 1}).wait(WAIT_S).is_yes


@pytest.mark.parametrize(
    ("stream", "key", "says"),
    [
        ("orders", "", "does not know this key (401 unauthenticated)"),
        ("orders", "hifisk_other", "does not know this key (401 unauthenticated)"),
        ("orders", SIGNS, "does not know this key (401 bad_signature)"),
        ("nowhere", KEY, "The stream does not exist (404 unknown_stream)"),
    ],
)
def test_what_a_person_has_to_change_is_one_sentence_and_the_events_fate(
    locked: RunningGateway, stream: str, key: str, says: str
) -> None:
    with Sender(locked.url, stream, key=key) as hifi:
        with pytest.raises(GatewayError) as caught:
            hifi.check()
        assert says in str(caught.value)
        outcome = hifi.send({"n": 1}).wait(WAIT_S)
    assert outcome.fate is Fate.REJECTED
    assert says in outcome.reason
    assert locked.url in outcome.reason


def test_nobody_there_is_one_sentence() -> None:
    with Sender("http://127.0.0.1:1", "orders", give_up_s=0.2) as hifi:
        with pytest.raises(GatewayError, match=r"^Cannot connect to http://127.0.0.1:1 .*running"):
            hifi.check()
        outcome = hifi.send({"n": 1}).wait(WAIT_S)
    assert outcome.fate is Fate.NOT_STORED
    assert outcome.reason.startswith("Cannot connect to http://127.0.0.1:1")


def test_somebody_else_who_says_yes_is_tried_again_until_time_is_up() -> None:
    page = Reply(200, body=b"<html>hello</html>")
    with scripted(page, page, taken(1)) as other, Sender(other.url, "orders") as hifi:
        assert hifi.send({"n": 1}).wait(WAIT_S).is_yes
        assert len(other.requests) == 3
    with scripted(page) as other, Sender(other.url, "orders", give_up_s=0.5) as hifi:
        outcome = hifi.send({"n": 1}).wait(WAIT_S)
    assert outcome.fate is Fate.UNKNOWN
    assert "not a Hifi gateway" in outcome.reason


def test_redirects_are_not_followed_and_said() -> None:
    elsewhere = Reply(308, {"location": "https://hifi.example/"})
    with scripted(elsewhere) as other, Sender(other.url, "orders") as hifi:
        outcome = hifi.send({"n": 1}).wait(WAIT_S)
    assert outcome.fate is Fate.REJECTED
    assert "use the address of https://hifi.example/" in outcome.reason


def test_a_pause_that_was_asked_for_holds_for_all_requests() -> None:
    with scripted(Reply(429, {"retry-after": "1"}), taken(1)) as other:
        begun_s = time.monotonic()
        with Sender(other.url, "orders", batch_count_max=1) as hifi:
            first, second = hifi.send({"n": 1}), hifi.send({"n": 2})
            assert first.wait(WAIT_S).is_yes
            assert second.wait(WAIT_S).is_yes
        assert time.monotonic() - begun_s >= 1


def test_a_request_keeps_its_key_and_body_however_often_it_goes() -> None:
    partly = b'{"request_id":"r","accepted":1,"results":[{"index":1,"status":"retry"}]}'
    replies = Reply(breaks_off=True), Reply(504), Reply(207, body=partly), taken(2)
    with scripted(*replies) as other:
        with Sender(other.url, "orders", is_idempotent=True) as hifi:
            sent = [hifi.send({"id": each}) for each in "ab"]
            assert [one.wait(WAIT_S).fate for one in sent] == [Fate.ACCEPTED] * 2
        assert len(other.requests) == 4
        assert len({each.headers["idempotency-key"] for each in other.requests}) == 1
        assert {each.body for each in other.requests} == {b'{"id":"a"}\n{"id":"b"}'}


def test_a_connection_that_was_closed_meanwhile_is_no_problem() -> None:
    with scripted(taken(1), Reply(breaks_off=True), taken(1)) as other:
        with Sender(other.url, "orders", parallel_max=1) as hifi:
            assert hifi.send({"n": 1}).wait(WAIT_S).is_yes
            assert hifi.send({"n": 2}).wait(WAIT_S).is_yes
            assert hifi.problem == ""
        assert len(other.requests) == 3


@pytest.mark.parametrize(
    ("url", "stream", "options"),
    [
        ("127.0.0.1:8080", "orders", {}),
        ("http://", "orders", {}),
        ("http://127.0.0.1:port", "orders", {}),
        ("http://user:word@127.0.0.1", "orders", {}),
        ("https://127.0.0.1", "orders", {"ca_file": "/nowhere"}),
        ("http://127.0.0.1", "Orders!", {}),
        ("http://127.0.0.1", "orders", {"batch": 5}),
        ("http://127.0.0.1", "orders", {"batch_count_max": 0}),
        ("http://127.0.0.1", "orders", {"compression": "br"}),
        ("http://127.0.0.1", "orders", {"when_full": "drop"}),
        ("http://127.0.0.1", "orders", {"linger_s": -1}),
    ],
)
def test_what_cannot_be_a_sender_is_refused_in_a_sentence(
    url: str, stream: str, options: dict[str, object]
) -> None:
    with pytest.raises(SetupError, match=r"[.:)]$"):
        Sender(url, stream, **options)


def test_what_is_no_event_is_refused_before_it_is_taken(gateway: RunningGateway) -> None:
    with Sender(gateway.url, "orders") as hifi, pytest.raises(NotAnEventError):
        hifi.send({"text": "x" * 1_000_000})


def test_a_closed_sender_says_so(gateway: RunningGateway) -> None:
    hifi = Sender(gateway.url, "orders")
    hifi.send({"n": 1})
    hifi.close()
    with pytest.raises(ClosedError):
        hifi.send({"n": 2})
    with Sender(gateway.url, "orders") as never:
        pass
    with pytest.raises(ClosedError):
        never.send({"n": 1})


def test_the_end_of_the_process_sends_what_waits(
    publisher: FakePublisher, gateway: RunningGateway
) -> None:
    program = (
        "import sys; from hifi_client import Sender;"
        "hifi = Sender(sys.argv[1], 'orders', linger_s=60); hifi.send({'id': 'last'})"
    )
    subprocess.run([sys.executable, "-c", program, gateway.url], check=True, timeout=60)
    assert stored(publisher) == ["last"]


def test_a_sender_goes_on_in_one_of_two_processes(
    publisher: FakePublisher, gateway: RunningGateway
) -> None:
    """Servers that load an application before they fork their workers need this."""
    program = (
        "import os, sys; from hifi_client import ClosedError, Sender\n"
        "begun, fresh = (Sender(sys.argv[1], 'orders') for _ in range(2))\n"
        "begun.send({'id': 'parent'})\n"
        "if not os.fork():\n"
        "    fresh.send({'id': 'child'})\n"
        "    try: begun.send({'id': 'nobody'})\n"
        "    except ClosedError: sys.exit(0)\n"
        "    os._exit(1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    subprocess.run([sys.executable, "-c", program, gateway.url], check=True, timeout=60)
    assert stored(publisher) == ["child", "parent"]


def test_a_callback_that_fails_is_nobody_elses_trouble(
    gateway: RunningGateway, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Outcome) -> None:
        raise ValueError("not today")

    with Sender(gateway.url, "orders", on_outcome=fail) as hifi:
        sent = [hifi.send({"n": n}) for n in range(2)]
        sent[0].on_outcome(fail)
        assert {one.wait(WAIT_S).fate for one in sent} == {Fate.ACCEPTED}
        sent[1].on_outcome(fail)
    assert "not today" in caplog.text


def test_a_coroutine_waits_for_its_event_and_nothing_else_waits_for_it(
    publisher: FakePublisher, gateway: RunningGateway
) -> None:
    async def main() -> list[Fate]:
        async with AsyncSender(gateway.url, "orders", memory_bytes_max=2_000) as hifi:
            await hifi.check()
            publisher.hold()
            many = asyncio.gather(*(hifi.send({"text": "x" * 100}) for _ in range(30)))
            done, _ = await asyncio.wait([asyncio.ensure_future(many)], timeout=0.2)
            assert not done
            publisher.release()
            fates = [(await one).fate for one in await many]
            assert await hifi.flush(WAIT_S)
            return fates

    assert asyncio.run(main()) == [Fate.ACCEPTED] * 30
