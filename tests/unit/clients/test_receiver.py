"""A receiver accepts only new deliveries signed by Hifi, and answers for each event."""

import base64
import gzip
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from hifi_client import DeliveryError, Receiver, RefusedError, SeenInMemory, SetupError

SECRET, OTHER = (f"whsec_{base64.b64encode(each * 24).decode()}" for each in (b"a", b"b"))
EVENTS = [{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "c", "n": 3}]
BODY = json.dumps(EVENTS).encode()


def signed(
    body: bytes = BODY, *, secret: str = SECRET, age_s: float = 0, **more: str
) -> dict[str, str]:
    at = datetime.fromtimestamp(int(time.time() - age_s), tz=UTC)
    return {
        "content-type": "application/json",
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign("msg_1", at, body.decode()),
        "hifi-stream": "orders",
        **more,
    }


def test_what_the_library_of_the_standard_signs_is_taken() -> None:
    taken: list[object] = []
    reply = Receiver(SECRET).answer(signed(), BODY, taken.append)
    assert (reply.status, taken) == (200, EVENTS)


def test_both_secrets_are_good_while_they_change() -> None:
    for secret in (SECRET, OTHER):
        assert Receiver([OTHER, SECRET]).open(signed(secret=secret), BODY).stream == "orders"
    both = signed()
    both["webhook-signature"] += " " + signed(secret=OTHER)["webhook-signature"]
    assert Receiver(OTHER).open(both, BODY).events == EVENTS


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, BODY),
        (signed(secret=OTHER), BODY),
        (signed(), BODY + b" "),
        (signed(age_s=9_000), BODY),
        (signed(age_s=-9_000), BODY),
        (signed() | {"webhook-timestamp": "now"}, BODY),
        (signed() | {"webhook-signature": "v1,??? v1a,abc"}, BODY),
        (signed() | {"webhook-id": "msg_2"}, BODY),
    ],
)
def test_what_is_not_signed_with_our_secret_just_now_is_401(
    headers: Mapping[str, str], body: bytes
) -> None:
    taken: list[object] = []
    reply = Receiver(SECRET).answer(headers, body, taken.append)
    assert (reply.status, taken) == (401, [])
    assert json.loads(reply.body)["detail"].endswith((".", "?"))


def test_a_clock_that_is_off_may_be_allowed_for() -> None:
    assert Receiver(SECRET, tolerance_s=600).open(signed(age_s=301), BODY).events == EVENTS


@pytest.mark.parametrize("secrets", ["", "whsec_", "whsec_?", []])
def test_a_receiver_without_a_secret_is_one_only_if_that_is_said(secrets: str | list[str]) -> None:
    with pytest.raises(SetupError):
        Receiver(secrets)
    assert Receiver(None).open({}, BODY).events == EVENTS


def test_a_copy_is_answered_and_not_taken_again() -> None:
    receiver, taken = Receiver(None), list[object]()
    for _ in range(2):
        assert receiver.answer({}, BODY, taken.append).status == 200
    assert taken == EVENTS
    twice = json.dumps([EVENTS[0], {"id": "d"}, {"id": "d"}]).encode()
    receiver.answer({}, twice, taken.append)
    assert taken == [*EVENTS, {"id": "d"}]


def test_of_cloud_events_the_source_tells_them_apart() -> None:
    events = [{"specversion": "1.0", "id": "a", "source": each} for each in ("/x", "/y", "/x")]
    assert len(Receiver(None).open({}, json.dumps(events).encode()).events) == 2


def test_events_without_an_id_are_all_taken() -> None:
    receiver = Receiver(None)
    for _ in range(2):
        delivery = receiver.open({}, b'[{"n":1},{"n":1}]')
        assert len(delivery.events) == 2
        delivery.reply()


def test_memory_is_bounded_and_forgets_the_oldest() -> None:
    seen = SeenInMemory(2)
    seen.add(["a", "b"])
    seen.add(["a"])
    seen.add(["c"])
    assert seen.known(["a", "b", "c"]) == {"a", "c"}


def test_each_event_has_its_own_answer_and_what_failed_is_taken_next_time() -> None:
    receiver, taken = Receiver(None), list[object]()

    def take(event: dict[str, object]) -> None:
        if event["id"] == "b":
            raise RefusedError("no such customer")
        if event["id"] == "c" and len(taken) < 2:
            taken.append("c failed")
            raise ValueError("the database is away")
        taken.append(event["id"])

    reply = receiver.answer({}, BODY, take)
    assert reply.status == 207
    failed = [{"index": 1, "status": 422}, {"index": 2, "status": 503}]
    assert json.loads(reply.body) == {"failed": failed}
    assert receiver.answer({}, json.dumps([EVENTS[0], EVENTS[2]]).encode(), take).status == 200
    assert taken == ["a", "c failed", "c"]


def test_places_are_those_of_the_batch_and_not_of_what_is_new() -> None:
    receiver = Receiver(None)
    receiver.open({}, json.dumps(EVENTS[:2]).encode()).reply()
    reply = receiver.open({}, BODY).reply({0: 503})
    assert json.loads(reply.body) == {"failed": [{"index": 2, "status": 503}]}


def test_when_nothing_could_be_taken_hifi_is_told_to_slow_down() -> None:
    def take(_: object) -> None:
        raise OSError

    assert Receiver(None).answer({}, BODY, take).status == 503


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", BODY),
        ("application/x-ndjson; charset=utf-8", b"\n".join(json.dumps(e).encode() for e in EVENTS)),
        ("application/cloudevents-batch+json", BODY),
    ],
)
def test_every_format_of_a_destination_is_read(content_type: str, body: bytes) -> None:
    assert Receiver(None).open({"Content-Type": content_type}, body).events == EVENTS
    assert Receiver(None).open({"Content-Type": "application/json"}, b'{"id":"a"}').events


def test_the_signature_is_that_of_the_body_before_it_was_packed() -> None:
    headers = signed() | {"content-encoding": "gzip"}
    assert Receiver(SECRET).open(headers, gzip.compress(BODY)).events == EVENTS
    # The framework has unpacked the body but left the header.
    assert Receiver(SECRET).open(headers, BODY).events == EVENTS


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, b"no json", 400),
        ({}, b"[1]", 400),
        ({"content-encoding": "gzip"}, b"\x1f\x8bnonsense", 400),
        ({"content-encoding": "gzip"}, gzip.compress(b" " * 64_000_001), 413),
        ({"content-encoding": "zstd"}, b"\x28\xb5\x2f\xfd", 503),
    ],
)
def test_what_cannot_be_read_is_refused(headers: dict[str, str], body: bytes, status: int) -> None:
    with pytest.raises(DeliveryError) as caught:
        Receiver(None).open(headers, body)
    assert caught.value.status == status
