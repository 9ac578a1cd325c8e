"""What may come in, judged by headers and room alone."""

import pytest

from gateway.admission import (
    InFlight,
    check_encoding,
    check_type,
    echoed_request_id,
    traceparent,
)
from gateway.problems import Problem

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "APPLICATION/JSON",
        "application/json;charset=utf-8",
        'application/json; charset="UTF-8"',
        "application/json; profile=x",
    ],
)
def test_json_is_taken(content_type: str) -> None:
    check_type(content_type)


@pytest.mark.parametrize(
    "content_type",
    ["", ";", "text/json", "application/jsonx", "application/json; charset=utf-16"],
)
def test_anything_else_is_415(content_type: str) -> None:
    with pytest.raises(Problem) as caught:
        check_type(content_type)
    assert caught.value.status == 415


@pytest.mark.parametrize("encoding", ["", "identity", " Identity "])
def test_plain_bodies_are_taken(encoding: str) -> None:
    check_encoding(encoding)


@pytest.mark.parametrize("encoding", ["gzip", "identity, gzip", "x"])
def test_other_encodings_are_415(encoding: str) -> None:
    with pytest.raises(Problem) as caught:
        check_encoding(encoding)
    assert caught.value.status == 415


def test_room_is_given_up_to_the_last_byte_and_comes_back() -> None:
    in_flight = InFlight(100)
    in_flight.enter(60, overdue_bytes=0)
    in_flight.enter(40, overdue_bytes=0)
    with pytest.raises(Problem) as caught:
        in_flight.enter(1, overdue_bytes=0)
    assert caught.value.status == 503
    assert (b"retry-after", b"1") in caught.value.headers
    assert in_flight.byte_count == 100, "a refusal takes no room"
    in_flight.leave(60)
    in_flight.enter(60, overdue_bytes=0)


def test_overdue_bytes_take_room_too() -> None:
    in_flight = InFlight(100)
    with pytest.raises(Problem):
        in_flight.enter(50, overdue_bytes=51)


@pytest.mark.parametrize(
    ("header", "passed_on"),
    [
        (PARENT, PARENT),
        (None, None),
        ("", None),
        (PARENT.upper(), None),
        (PARENT + "\n", None),
        ("01" + PARENT[2:], None),
    ],
)
def test_only_a_right_traceparent_is_passed_on(header: str | None, passed_on: str | None) -> None:
    assert traceparent(header) == passed_on


@pytest.mark.parametrize(
    ("header", "echoed"),
    [("abc", "abc"), (None, "ours"), ("", "ours"), ("a b", "ours"), ("x" * 129, "ours")],
)
def test_a_request_id_is_echoed_if_it_is_fit_for_a_header(header: str | None, echoed: str) -> None:
    assert echoed_request_id(header, otherwise="ours") == echoed
