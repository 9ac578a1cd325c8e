"""Admission of requests, judged by headers and room alone."""

import pytest

from gateway.intake.admission import (
    Format,
    echoed_request_id,
    read_encoding,
    read_format,
    traceparent,
)
from gateway.intake.byte_budget import ByteBudget
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
    assert read_format({b"content-type": content_type}) is Format.JSON


@pytest.mark.parametrize(
    "content_type",
    ["", ";", "text/json", "application/jsonx", "application/json; charset=utf-16"],
)
def test_anything_else_is_415(content_type: str) -> None:
    with pytest.raises(Problem) as caught:
        read_format({b"content-type": content_type})
    assert caught.value.status == 415


@pytest.mark.parametrize(
    ("content_type", "found"),
    [
        ("application/x-ndjson", Format.NDJSON),
        ("application/jsonl; charset=utf-8", Format.NDJSON),
        ("application/cloudevents+json", Format.CLOUD_EVENT),
        ("Application/CloudEvents-Batch+JSON; charset=UTF-8", Format.CLOUD_EVENTS),
    ],
)
def test_other_formats_are_known_by_their_type(content_type: str, found: Format) -> None:
    assert read_format({b"content-type": content_type}) is found


@pytest.mark.parametrize("content_type", ["", "image/png", "application/json"])
def test_with_ce_headers_any_type_is_the_data_of_a_cloud_event(content_type: str) -> None:
    headers = {b"content-type": content_type, b"ce-specversion": "1.0"}
    assert read_format(headers) is Format.CLOUD_EVENT_BINARY


@pytest.mark.parametrize("name", [b"ce-id", b"ce-source", b"ce-type"])
def test_half_a_cloud_event_is_400_and_not_an_event_without_its_identity(name: bytes) -> None:
    # CloudEvents 1.0.2, Required Attributes: each of the four MUST be present.
    with pytest.raises(Problem) as caught:
        read_format({b"content-type": "application/json", name: "x"})
    assert (caught.value.status, caught.value.code) == (400, "bad_header")
    assert "ce-specversion" in caught.value.detail
    # A structured event may repeat some attributes in headers (HTTP binding 1.0.2, 3.2.3).
    structured = {b"content-type": "application/cloudevents+json", name: "x"}
    assert read_format(structured) is Format.CLOUD_EVENT


@pytest.mark.parametrize(
    ("header", "encoding"),
    [
        (None, "identity"),
        ("", "identity"),
        (" Identity ", "identity"),
        ("GZIP", "gzip"),
        ("x-gzip", "gzip"),
        ("zstd", "zstd"),
        ("br", "br"),
    ],
)
def test_encodings_are_known_by_name(header: str | None, encoding: str) -> None:
    assert read_encoding(header) == encoding


@pytest.mark.parametrize("encoding", ["deflate", "gzip, gzip", "x"])
def test_other_encodings_are_415(encoding: str) -> None:
    with pytest.raises(Problem) as caught:
        read_encoding(encoding)
    assert caught.value.status == 415


def test_room_is_given_up_to_the_last_byte_and_comes_back() -> None:
    budget = ByteBudget(100)
    budget.enter(60, tenant="t", overdue_bytes=0)
    budget.enter(40, tenant="t", overdue_bytes=0)
    with pytest.raises(Problem) as caught:
        budget.enter(1, tenant="t", overdue_bytes=0)
    assert caught.value.status == 503
    assert (b"retry-after", b"1") in caught.value.headers
    assert budget.byte_count == 100, "a refusal takes no room"
    budget.leave(60, tenant="t")
    budget.enter(60, tenant="t", overdue_bytes=0)


def test_overdue_bytes_take_room_too() -> None:
    budget = ByteBudget(100)
    with pytest.raises(Problem):
        budget.enter(50, tenant="t", overdue_bytes=51)


@pytest.mark.parametrize(
    ("header", "passed_on"),
    [
        (PARENT, PARENT),
        (None, None),
        ("", None),
        (PARENT.upper(), None),
        (PARENT + "\n", None),
        (PARENT + "-more", None),
        # W3C Trace Context, 3.2.2.3 and 3.2.2.4: vendors MUST ignore a header with an id of zeros.
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
        (f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01", None),
        # 3.2.2.1: version ff is invalid.
        ("ff" + PARENT[2:], None),
        # 3.2.4: vendors MUST parse a later version as the version that they know, if only a dash,
        # and no further digit, follows.
        ("01" + PARENT[2:], PARENT),
        ("cc" + PARENT[2:-2] + "09-what-ever", PARENT),
        ("cc" + PARENT[2:-2] + "08", PARENT[:-2] + "00"),
        ("cc" + PARENT[2:] + ".more", None),
        ("cc" + PARENT[2:] + "1", None),
        # Two headers, joined as the server joins them.
        (f"{PARENT}, {PARENT}", None),
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


def test_one_tenant_leaves_room_for_the_others() -> None:
    budget = ByteBudget(100, tenant_bytes_max=75)
    budget.enter(75, tenant="a", overdue_bytes=0)
    with pytest.raises(Problem) as caught:
        budget.enter(1, tenant="a", overdue_bytes=0)
    assert caught.value.status == 429
    budget.enter(25, tenant="b", overdue_bytes=0)
    budget.leave(75, tenant="a")
    budget.enter(75, tenant="a", overdue_bytes=0)
