"""A newer Hifi writes beside this one, as during each upgrade; this one skips its additions."""

import json
from typing import Any

import pytest

from delivery.event_columns import columns_of
from shared.config.access import ApiKey, Secret, Tenant
from shared.config.configuration import (
    Configuration,
    RemovedDestination,
    RemovedPipeline,
    RemovedStream,
    Stream,
)
from shared.config.destination import Destination
from shared.config.model import ConfigObject
from shared.config.pipeline import Pipeline, Source, ToStream
from shared.event.envelope import (
    event_headers,
    open_retry_record,
    open_stream_record,
    retry_headers,
)
from shared.event.record import Headers, Origin, RecordIn
from shared.proof.acked import AckedRow, AckedSlice
from shared.proof.statement import NO_PREVIOUS, Counts, SignedStatement, Statement
from tests.support.delivery.fetched_rows import fetched
from tests.support.suite.samples import NOW_MS, a_history, a_record, an_envelope

OBJECTS: list[ConfigObject] = [
    Stream("orders", 4, tenant="acme"),
    Destination("orders", "shop", "https://shop.example/in", parallel_max=3),
    Pipeline("sales", Source("orders"), (ToStream("eu"),), tenant="acme"),
    ApiKey("ops", (Secret("0" * 64),)),
    Tenant("acme", events_per_s=5.0),
    RemovedStream("gone", "acme", 4, 17),
    RemovedDestination("gone", "shop", "acme", 17),
    RemovedPipeline("gone", "acme", "orders", 1, 17),
]
# Names that this version does not use, with text, a number, and bytes that are not text.
MORE: Headers = (("hifi-colour", b"red"), ("hifi-count", b"7"), ("hifi-raw", b"\xff\x00"))


@pytest.mark.parametrize("known", OBJECTS, ids=lambda each: type(each).__name__)
def test_new_members_change_nothing_and_are_kept_by_who_writes_it_again(
    known: ConfigObject,
) -> None:
    newer = {**known.to_fields(), "colour": "red", "rules": [{"a": 1}]}
    alone = Configuration().apply(known.config_key, known.to_json())
    read = Configuration().apply(known.config_key, json.dumps(newer).encode())

    def only(configuration: Configuration) -> Any:
        members = (getattr(configuration, name) for name in configuration.__slots__)
        (found,) = [each for member in members for each in member.values()]
        return found

    mine, theirs = only(alone), only(read)
    written = json.loads(theirs.to_json())
    assert {name: written[name] for name in json.loads(mine.to_json())} == mine.to_fields()
    assert written == newer


def test_new_kinds_of_objects_hide_none_of_those_that_are_known() -> None:
    read = Configuration()
    for each in OBJECTS:
        read = read.apply(b"widget:" + each.config_key, b'{"colour": "red"}')
        read = read.apply(each.config_key, each.to_json())
        read = read.apply(b"colour:red", b"\x00 no JSON")
        read = read.apply(b"widget:" + each.config_key, None)
    alone = Configuration()
    for each in OBJECTS:
        alone = alone.apply(each.config_key, each.to_json())
    assert read == alone


def test_new_headers_of_an_event_change_nothing() -> None:
    ours = event_headers(event_id="e", event_time_ms=NOW_MS, accepted_at_ms=NOW_MS)

    def an_event(offset: int, headers: Headers) -> RecordIn:
        return RecordIn(Origin("hifi.stream.orders", 0, offset), NOW_MS, b"k", b"{}", headers)

    newer = an_event(50, (*MORE[:1], *ours, *MORE[1:]))
    assert open_stream_record(newer) == open_stream_record(an_event(50, ours))
    # The fast reader knows only what this version writes, and leaves other records to the slow one.
    plain = [an_event(offset, ours) for offset in range(50)]
    assert columns_of(fetched(plain)) is not None
    assert columns_of(fetched([*plain, newer])) is None


def test_new_headers_of_a_waiting_event_do_not_make_a_dead_one() -> None:
    ours = retry_headers(an_envelope(), "orders/shop", a_history(), now_ms=NOW_MS)
    plain, newer = a_record(ours), a_record((*MORE, *ours))
    assert open_retry_record(newer) == open_retry_record(plain)


def test_new_members_of_the_ledgers_rows_change_nothing() -> None:
    row = AckedRow("hifi.stream.orders", 0, (AckedSlice(0, ((2, 0),), 1_000),), ("a", "b"))
    head, _, ids = row.to_bytes().partition(b"\n")
    newer = json.dumps({**json.loads(head), "colour": "red"}).encode()
    assert AckedRow.from_bytes(b"\n".join((newer, ids))) == row


def test_a_statement_has_these_members_for_good() -> None:
    """A statement's bytes are signed and chained: readers rebuild them from the members they know.

    New members belong beside the statement, where older readers skip them.
    """
    counts = {"shop": Counts(1, 0, 0, {})}
    said = Statement("orders", 0, 1, 1, 1, "ab", counts, NOW_MS, NO_PREVIOUS)
    assert sorted(json.loads(said.to_bytes())) == [
        *("acked", "destinations", "id_count", "issued_at_ms", "minute_ms"),
        *("previous", "revision", "root", "stream"),
    ]
    signed = SignedStatement(said, "cd", b"signature")
    newer = json.dumps({**json.loads(signed.to_json()), "colour": "red"}).encode()
    assert SignedStatement.from_json(newer) == signed
