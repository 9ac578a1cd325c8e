"""Quotas, replays, options and depth: tables of admitted and of refused requests."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fleet.quota import Quotas
from gateway.fleet.shares import Members, ShareNews
from gateway.intake.json_depth import is_deeper
from gateway.problems import Problem
from gateway.request_options import RequestOptions, read_options
from shared.config.access import Tenant

ACME = Tenant("acme", events_per_s=100)


def test_a_tenant_without_a_quota_is_let_in_and_told_nothing() -> None:
    quotas = Quotas()
    quotas.admit(None, now_s=0)
    quotas.use(None, events=10**9, byte_count=0, now_s=0)
    assert quotas.headers(None, now_s=0) == ()


def test_what_was_used_must_come_back_before_the_next() -> None:
    quotas = Quotas()
    quotas.admit(ACME, now_s=0)
    quotas.use(ACME, events=300, byte_count=0, now_s=0)
    with pytest.raises(Problem) as caught:
        quotas.admit(ACME, now_s=1.5)
    assert (caught.value.code, caught.value.status) == ("quota_events", 429)
    assert caught.value.members["violated-policies"] == ["tenant-events"]
    headers = dict(caught.value.headers)
    # 200 below zero at 100 a second, less the half second already waited, plus one to use.
    assert headers[b"retry-after"] == b"1"
    assert dict(quotas.headers(ACME, now_s=1.5))[b"ratelimit"] == b'"tenant-events";r=0;t=1'
    quotas.admit(ACME, now_s=2.1)


def test_a_quota_is_given_out_a_second_at_a_time() -> None:
    quotas = Quotas()
    quotas.admit(ACME, now_s=0)
    assert quotas.headers(ACME, now_s=1_000) == (
        (b"ratelimit-policy", b'"tenant-events";q=100;w=1'),
        (b"ratelimit", b'"tenant-events";r=100;t=0'),
    )


def test_requests_count_when_they_are_let_in() -> None:
    quotas, tenant = Quotas(), Tenant("acme", requests_per_s=2)
    quotas.admit(tenant, now_s=0)
    quotas.admit(tenant, now_s=0)
    with pytest.raises(Problem, match="2 requests per second"):
        quotas.admit(tenant, now_s=0)


def test_gateways_share_a_quota_and_the_headers_name_all_of_it() -> None:
    quotas = Quotas(Members(b"me"))
    for name in (b"a", b"b", b"c"):
        quotas.members.take(name, ShareNews({"acme": {"events": 1_000}}).to_bytes(), 0)
    quotas.admit(ACME, now_s=0)
    quotas.use(ACME, events=26, byte_count=0, now_s=0)
    with pytest.raises(Problem, match="quota of 100 events per second") as caught:
        quotas.admit(ACME, now_s=0)
    # The wait follows the share of a process that asks for quota, not of one that does not ask.
    assert dict(caught.value.headers)[b"retry-after"] == b"2"
    policy, left = (value for _, value in quotas.headers(ACME, now_s=0))
    assert policy == b'"tenant-events";q=100;w=1'
    assert left.startswith(b'"tenant-events";r=0;')


def test_a_quota_that_is_changed_counts_at_once() -> None:
    quotas = Quotas()
    quotas.use(ACME, events=200, byte_count=0, now_s=0)
    with pytest.raises(Problem):
        quotas.admit(ACME, now_s=0)
    quotas.admit(Tenant("acme", events_per_s=200), now_s=0)
    quotas.admit(Tenant("acme"), now_s=0)
    assert quotas.headers(Tenant("acme"), now_s=0) == ()


def test_wants_are_told_at_once_when_they_begin_and_when_something_is_refused() -> None:
    told: list[str] = []
    quotas = Quotas(tell=lambda: told.append("told"))
    assert quotas.news(now_s=10.0) == ShareNews()
    quotas.admit(ACME, now_s=10.0)
    assert len(told) == 1
    quotas.use(ACME, events=100, byte_count=0, now_s=10.0)
    with pytest.raises(Problem):
        quotas.admit(ACME, now_s=10.0)
    assert len(told) == 2
    assert quotas.news(now_s=10.5).wants["acme"]["events"] == 100 * 4, "two in half a second"
    assert quotas.news(now_s=11.0).wants == {}, "no request came since"


OPTIONS: list[tuple[dict[bytes, str], bytes, RequestOptions]] = [
    ({}, b"", RequestOptions()),
    ({b"prefer": "handling=strict"}, b"", RequestOptions(is_strict=True)),
    ({b"prefer": 'return="minimal", handling=lenient'}, b"", RequestOptions(is_minimal=True)),
    ({b"prefer": "handling=lenient, handling=strict"}, b"", RequestOptions()),
    ({b"prefer": "respond-async, wait=10; x=y"}, b"", RequestOptions()),
    ({}, b"dry_run=true", RequestOptions(is_dry_run=True)),
    ({}, b"dry_run", RequestOptions(is_dry_run=True)),
    ({}, b"results=all&dry_run=false", RequestOptions(lists_all=True)),
    ({b"idempotency-key": '"quoted"'}, b"", RequestOptions(idempotency_key="quoted")),
    ({b"idempotency-key": "bare"}, b"", RequestOptions(idempotency_key="bare")),
    ({b"x-partition-key": "\xe9"}, b"", RequestOptions(ordering_key=b"\xe9")),
]


@pytest.mark.parametrize(("headers", "query", "options"), OPTIONS)
def test_wishes_are_read(headers: dict[bytes, str], query: bytes, options: RequestOptions) -> None:
    assert read_options(headers, query) == options


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({b"idempotency-key": ""}, b""),
        ({b"idempotency-key": "x" * 256}, b""),
        ({b"idempotency-key": "a\x07b"}, b""),
        ({b"x-partition-key": "x" * 1_025}, b""),
        ({}, b"dry_run=maybe"),
        ({}, b"dryrun=true"),
        ({}, b"results=all&other"),
        ({}, b"results=all&results=all"),
        ({}, b"&".join([b"a=b"] * 21)),
    ],
)
def test_wishes_that_make_no_sense_are_400(headers: dict[bytes, str], query: bytes) -> None:
    with pytest.raises(Problem) as caught:
        read_options(headers, query)
    assert caught.value.status == 400


def nested(value: Any) -> int:
    """Return the depth of a value, computed the slow way."""
    if isinstance(value, dict):
        return 1 + max(map(nested, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(nested, value), default=0)
    return 0


values = st.recursive(
    st.none() | st.text(alphabet='[]{}"\\a', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('{"', max_size=2), inner),
    max_leaves=20,
)


@given(values, st.integers(0, 8))
def test_depth_is_counted_in_brackets_outside_of_texts(value: Any, depth_max: int) -> None:
    assert is_deeper(json.dumps(value).encode(), depth_max) == (nested(value) > depth_max)


@pytest.mark.parametrize("height", [1, 11, 12, 13, 63, 64, 65, 100, 200])
@pytest.mark.parametrize(
    "filler", ["", "[],", '"[[",', "[[[],[]],[]],", r'"\\","\"{[",', '{"[":1},']
)
def test_depth_is_exact_whatever_lies_beside_it(height: int, filler: str) -> None:
    value = "1"
    for _ in range(height):
        value = f"[{filler * 3}{value}]"
    deepest = nested(json.loads(value))
    assert not is_deeper(value.encode(), deepest)
    assert is_deeper(value.encode(), deepest - 1)
