"""A statement has the same bytes for everybody, and its root stands for exactly one set of ids."""

import hashlib
import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from shared.proof.merkle import merkle_root
from shared.proof.statement import NO_PREVIOUS, Counts, SignedStatement, Statement

ids = st.one_of(
    st.lists(st.text(min_size=1, max_size=4), max_size=40),
    st.lists(st.text("a\\\nb", min_size=1, max_size=5), max_size=40),
    st.integers(0, 300).map(lambda count: [f"id-{number}" for number in range(count)]),
)
STATEMENT = Statement(
    stream="orders",
    minute_ms=1_699_999_980_000,
    revision=1,
    acked=3,
    id_count=3,
    root=merkle_root(["a", "b", "c"]).hex(),
    destinations={"shop": Counts(delivered=2, waiting=0, dead=0, lost={"kafka": 1})},
    issued_at_ms=1_700_000_000_000,
    previous=NO_PREVIOUS,
)


def rfc_root(leaves: list[bytes]) -> bytes:
    """Compute the root exactly as in RFC 9162, 2.1.1."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    at = 1
    while at * 2 < len(leaves):
        at *= 2
    return hashlib.sha256(b"\x01" + rfc_root(leaves[:at]) + rfc_root(leaves[at:])).digest()


@given(ids)
def test_the_root_is_that_of_the_rfc_over_blocks_of_the_sorted_set(found: list[str]) -> None:
    lines = [one.replace("\\", "\\\\").replace("\n", "\\n") for one in sorted(set(found))]
    blocks = ["\n".join(lines[at : at + 64]).encode() for at in range(0, len(lines), 64)]
    assert merkle_root(found) == rfc_root(blocks)


@given(ids, ids)
def test_two_sets_have_the_same_root_only_if_they_are_the_same(
    one: list[str], other: list[str]
) -> None:
    assert (merkle_root(one) == merkle_root(other)) == (set(one) == set(other))


def test_what_is_signed_is_json_with_sorted_names_and_no_spaces() -> None:
    plain = msgspec.to_builtins(STATEMENT)
    assert STATEMENT.to_bytes() == _sorted_json(plain)
    signed = SignedStatement(STATEMENT, "ab" * 32, b"\x01\x02")
    whole = {"statement": plain, "public_key": "ab" * 32, "signature": "AQI="}
    assert signed.to_json() == _sorted_json(whole)


def test_what_pipelines_have_done_is_said_only_where_there_are_any() -> None:
    # People who verified statements before there were pipelines still can.
    assert b"derived" not in STATEMENT.to_bytes()
    assert b"not_passed" not in STATEMENT.to_bytes()
    counts = Counts(delivered=2, waiting=0, dead=0, lost={}, not_passed={"filtered": 1})
    more = structs.replace(STATEMENT, derived=4, destinations={"pipeline:p": counts})
    assert b'"derived":4' in more.to_bytes()
    assert b'"not_passed":{"filtered":1}' in more.to_bytes()
    signed = SignedStatement(more, "ab" * 32, b"\x01")
    assert SignedStatement.from_json(signed.to_json()) == signed


def _sorted_json(plain: object) -> bytes:
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def test_a_signed_statement_is_the_same_after_its_json() -> None:
    signed = SignedStatement(STATEMENT, "ab" * 32, b"\x01\x02")
    assert SignedStatement.from_json(signed.to_json()) == signed


def test_the_digest_follows_every_word() -> None:
    assert len(STATEMENT.digest) == len(NO_PREVIOUS)
    assert structs.replace(STATEMENT, acked=4).digest != STATEMENT.digest
    assert STATEMENT.to_bytes().startswith(b'{"acked":3,"destinations":{"shop":{"dead":0,')
