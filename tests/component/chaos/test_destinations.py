"""The destinations of a chaos run follow their moods, and remember the events that they took."""

import json
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.chaos.actions import MOODS
from tests.chaos.destinations import Destinations, open_destinations
from tests.chaos.recount import Arrival

PATH = "/t0/t0-s1/d2"
IDS = [f"t0.t0-s1.a.{n}" for n in (1, 2, 7)]
# Long enough for an answer on loopback, and too short for a mood that hangs or drips.
PATIENCE_S = 0.5
# The mood, the beginning of its answer, the ids it accepts, and whether it resets the connection.
CASES = [
    ("throttle", b"HTTP/1.1 429 ", [], False),
    ("unavailable", b"HTTP/1.1 503 ", [], False),
    ("unauthorized", b"HTTP/1.1 401 ", [], False),
    ("redirect", b"HTTP/1.1 302 ", [], False),
    ("gone", b"HTTP/1.1 410 ", [], False),
    ("hang", b"", IDS, False),
    ("reset_before", b"", [], True),
    ("reset_after", b"", IDS, True),
    ("partial_207", b"HTTP/1.1 207 ", IDS[1:], False),
    ("cut_207", b"HTTP/1.1 207 ", IDS[1:], False),
    ("packed_207", b"HTTP/1.1 207 ", IDS[1:], False),
    ("long_207", b"HTTP/1.1 207 ", IDS[1:], False),
    ("slow_body", b"HTTP/1.1 200 ", IDS, False),
    ("garbage", b"\x16\x03\x01", IDS, False),
    ("limit", b"HTTP/1.1 200 ", IDS, False),
    ("refuse_some", b"HTTP/1.1 400 ", [], False),
    ("refuse_slowly", b"HTTP/1.1 422 ", [], False),
]


@pytest.fixture
def destinations() -> Iterator[Destinations]:
    with open_destinations() as opened:
        opened.slow_s = PATIENCE_S / 5
        yield opened


def post(destinations: Destinations, ids: list[str], *, label: bool = False) -> tuple[bytes, bool]:
    """Return the whole answer, and whether the connection was reset."""
    body = json.dumps([{"id": one} for one in ids]).encode()
    again = "hifi-maybe-duplicate: 1\r\n" if label else ""
    head = f"POST {PATH} HTTP/1.1\r\ncontent-type: application/json\r\n{again}"
    url = urlsplit(destinations.url)
    assert url.port is not None
    with socket.create_connection(("127.0.0.1", url.port), timeout=PATIENCE_S) as connection:
        answered = b""
        try:
            connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            # Send nothing more, so that a destination that has answered closes the connection.
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65_536):
                answered += part
        except TimeoutError:
            return answered, False
        except OSError:
            return answered, True
        return answered, False


def taken(destinations: Destinations) -> list[str]:
    return [arrival.event_id for arrival in destinations.arrivals]


def test_in_no_mood_everything_is_taken_with_its_label(destinations: Destinations) -> None:
    answered, _ = post(destinations, IDS[:1], label=True)
    assert answered.startswith(b"HTTP/1.1 200 ")
    assert destinations.arrivals == [Arrival("t0", "t0-s1/d2", IDS[0], is_labelled=True)]


@pytest.mark.parametrize(("mood", "begins", "took", "resets"), CASES)
def test_a_mood_does_what_it_is_called(
    destinations: Destinations, mood: str, begins: bytes, took: list[str], *, resets: bool
) -> None:
    destinations.put_in_mood(PATH, mood, for_s=60)
    answered, was_reset = post(destinations, IDS)
    assert answered.startswith(begins)
    assert was_reset is resets
    assert taken(destinations) == took
    assert destinations.served == {mood: 1}
    destinations.calm()
    assert post(destinations, IDS[:1])[0].startswith(b"HTTP/1.1 200 ")


def test_a_cut_report_is_cut_and_a_whole_one_names_what_failed(destinations: Destinations) -> None:
    destinations.put_in_mood(PATH, "partial_207", for_s=60)
    report = post(destinations, IDS)[0].partition(b"\r\n\r\n")[2]
    assert json.loads(report) == {"failed": [{"id": IDS[0], "status": 503}]}
    destinations.put_in_mood(PATH, "cut_207", for_s=60)
    assert post(destinations, IDS)[0].partition(b"\r\n\r\n")[2] == report[:-5]


def test_a_rate_limited_event_that_comes_again_too_soon_is_noted_unless_it_is_labelled(
    destinations: Destinations,
) -> None:
    destinations.put_in_mood(PATH, "throttle", for_s=60)
    post(destinations, IDS[:2])
    destinations.calm()
    post(destinations, IDS[:1], label=True)
    assert destinations.early == []
    post(destinations, IDS[1:])
    assert destinations.early == [Arrival("t0", "t0-s1/d2", IDS[1], is_labelled=False)]
    time.sleep(1.0)
    post(destinations, IDS)
    assert len(destinations.early) == 1


def test_who_denies_an_event_has_answered_200_to_it(destinations: Destinations) -> None:
    destinations.denies_one = True
    assert post(destinations, IDS)[0].startswith(b"HTTP/1.1 200 ")
    assert taken(destinations) == IDS[1:]
    assert destinations.denied == IDS[:1]


def test_who_is_picky_is_down_first_and_refuses_slowly_whatever_others_do(
    destinations: Destinations,
) -> None:
    destinations.make_picky(PATH, down_s=60)
    assert post(destinations, IDS)[0].startswith(b"HTTP/1.1 503 ")
    destinations.make_picky(PATH, down_s=0)
    destinations.calm()
    assert post(destinations, IDS)[0].startswith(b"HTTP/1.1 422 ")
    assert post(destinations, IDS[:2])[0].startswith(b"HTTP/1.1 200 ")
    assert taken(destinations) == IDS[:2]


def test_every_mood_is_tried_here() -> None:
    assert {case[0] for case in CASES} == set(MOODS)
