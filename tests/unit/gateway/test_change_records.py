"""Contents of a change's record, and facts that it must leave out."""

import json
from dataclasses import replace

import msgspec
import pytest

from gateway.authors import Author
from gateway.control.changes.log import AskedChanges, ChangeIndex
from gateway.control.changes.record import (
    KEPT_MAX,
    ChangedSetting,
    ChangeRecord,
    Deed,
    with_deed,
    with_records,
)
from shared.config.access import ApiKey, Secret, Tenant
from shared.config.configuration import (
    ChangeCount,
    Configuration,
    RemovedDestination,
    Replacement,
    Stream,
)
from shared.config.credentials import Bearer, Proxy
from shared.config.destination import Destination
from shared.config.model import ConfigObject
from shared.config.pipeline import Pipeline
from shared.event.record import Origin, RecordIn
from shared.event.topics import CHANGES

OPS = Author("acme", "key", "ops")
ORDERS = Stream("orders", tenant="acme")
SHOP = Destination("orders", "shop", "https://shop.example/hooks/T0P/s3cret?token=s3cret")
KNOWN = Configuration(streams={"orders": ORDERS}, destinations={SHOP.id: SHOP})
HASHES = [Secret(f"{nth}" * 64, "sign") for nth in range(3)]
KEY = ApiKey("shop", (HASHES[0],), tenant="acme")
PIPELINE = Pipeline.of(
    {
        "name": "sums",
        "tenant": "acme",
        "from": {"stream": "orders"},
        "steps": [],
        "to": [{"stream": "orders-2"}],
    }
)
BUILT = Replacement("sums", 2, replace(PIPELINE, generation=2))


def record(
    after: ConfigObject | None,
    *,
    before: ConfigObject | None = None,
    known: Configuration = KNOWN,
    did: str = "",
) -> ChangeRecord:
    """Return the record that this change leaves."""
    there = after or before
    assert there is not None
    known = known if before is None else known.apply(before.config_key, before.to_json())
    value = after.to_json() if after else None
    ((_, raw),) = with_records(known, [(there.config_key, value)], by=OPS, did=did).records
    return msgspec.json.decode(raw, type=ChangeRecord)


def test_a_new_object_is_told_with_what_is_not_as_by_default() -> None:
    told = record(replace(SHOP, name="new", rate_per_s=7.0))
    assert (told.tenant, told.by, told.did) == ("acme", OPS, "created")
    assert (told.kind, told.name) == ("destination", "orders/new")
    assert [each.name for each in told.settings] == ["rate_per_s", "url"]
    assert told.settings[0] == ChangedSetting("rate_per_s", after=7)


def test_settings_that_differ_are_told_with_their_values() -> None:
    told = record(replace(SHOP, rate_per_s=7.0), before=replace(SHOP, rate_per_s=9.0))
    assert told.settings == (ChangedSetting("rate_per_s", 9, 7),)
    assert told.before != told.after
    key = record(replace(KEY, scopes=frozenset({"read"})), before=KEY)
    assert key.settings == (ChangedSetting("scopes", ["write"], ["read"]),)


SEALED = "sealed:v1:s3cret"
SECRETS = [
    replace(SHOP, auth=Bearer(SEALED)),
    replace(SHOP, headers={"x-api-key": "s3cret"}),
    replace(SHOP, secret_headers={"x-api-key": SEALED}),
    replace(SHOP, signing_secrets=(SEALED,)),
    replace(SHOP, proxy=Proxy("http://proxy.example:3128", "s3cret", SEALED)),
    replace(SHOP, url="https://user@shop.example/s3cret2?s3cret"),
    replace(SHOP, others={"of_a_newer_hifi": "s3cret"}),
]


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("after", SECRETS)
def test_no_secret_is_told(after: Destination, *, is_new: bool) -> None:
    told = record(replace(after, name="new")) if is_new else record(after, before=SHOP)
    assert "s3cret" not in json.dumps(msgspec.to_builtins(told))
    assert told.settings


def test_of_a_key_is_told_how_many_texts_are_good_and_nothing_of_them() -> None:
    told = record(KEY.with_new(HASHES[1]), before=KEY)
    assert told.settings == (ChangedSetting("live_texts", 1, 2),)
    assert HASHES[0].hash not in json.dumps(msgspec.to_builtins(record(replace(KEY, id="new"))))


DEEDS: list[tuple[ConfigObject | None, ConfigObject | None, str]] = [
    (None, replace(ORDERS, name="new"), "created"),
    (SHOP, None, "deleted"),
    (SHOP, RemovedDestination("orders", "shop", "acme", 5), "deleted"),
    (SHOP, replace(SHOP, timeout_s=3.0), "changed"),
    (SHOP, replace(SHOP, is_paused=True), "paused"),
    (SHOP, replace(SHOP, is_paused=True, timeout_s=3.0), "changed"),
    (SHOP, replace(SHOP, is_disabled=True), "disabled"),
    (replace(SHOP, is_paused=True), SHOP.resumed(at_ms=5), "resumed"),
    (SHOP, SHOP.resumed(at_ms=5), "tried now"),
    (KEY, KEY.with_new(HASHES[1]), "rotated"),
    (KEY.with_new(HASHES[1]), KEY.with_new(HASHES[1]).with_new(HASHES[2]), "rotated"),
    (KEY.with_new(HASHES[1]), KEY.with_new(HASHES[1]).with_newest_only(), "retired"),
    (KEY, replace(KEY, scopes=frozenset({"read"})), "changed"),
    (None, BUILT, "created"),
    (BUILT, replace(BUILT, document=None), "given up"),
    (replace(BUILT, document=None), BUILT, "created"),
]


@pytest.mark.parametrize(("before", "after", "did"), DEEDS)
def test_what_was_done_has_a_word(
    before: ConfigObject | None, after: ConfigObject | None, did: str
) -> None:
    told = record(after, before=before)
    assert (told.did, told.tenant) == (did, "acme")
    assert record(after, before=before, did="put in place").did == "put in place"


def test_what_is_changed_is_its_owners_whoever_has_changed_it() -> None:
    assert record(Tenant("zoo", events_per_s=5)).tenant == "zoo"
    known = replace(KNOWN, pipelines={"sums": replace(PIPELINE, tenant="zoo")})
    assert record(BUILT, known=known).tenant == "zoo"


def test_what_changes_nothing_has_no_record() -> None:
    for change in ((SHOP.config_key, SHOP.to_json()), (b"key:none", None)):
        made = with_records(KNOWN, [change], by=OPS)
        assert (list(made.changes), made.records) == ([change], [])


def test_numbers_go_on_from_the_last_and_places_come_round() -> None:
    known = replace(KNOWN, change_counts={"acme": ChangeCount("acme", KEPT_MAX - 1)})
    two = [replace(SHOP, name=name) for name in ("a", "b")]
    made = with_records(known, [(each.config_key, each.to_json()) for each in two], by=OPS)
    assert [place for place, _ in made.records] == [b"acme:0", b"acme:1"]
    told = [msgspec.json.decode(raw, type=ChangeRecord) for _, raw in made.records]
    assert [each.number for each in told] == [KEPT_MAX, KEPT_MAX + 1]
    after = known
    for change in made.changes:
        after = after.apply(*change)
    assert after.change_counts == {"acme": ChangeCount("acme", KEPT_MAX + 1)}


def test_a_record_is_small_whatever_is_changed() -> None:
    fields = {f"unheard-of-{nth}": "x" * 90 for nth in range(200)}
    told = record(replace(SHOP, name="n" * 100, others=fields))
    assert len(msgspec.json.encode(told)) < 8_192
    assert (len(told.settings), told.left_out) == (12, 189)
    wide = record(replace(ORDERS, name="wide", json_schema=json.dumps({"title": "x" * 200})))
    assert wide.settings == (ChangedSetting("schema"),)


def test_a_deed_is_told_with_its_facts() -> None:
    deed = Deed("acme", "stream", "orders", "redriven", {"limit": 5, "reason": "x" * 200})
    made = with_deed(KNOWN, deed, by=OPS)
    ((_, raw),) = made.records
    told = msgspec.json.decode(raw, type=ChangeRecord)
    assert (told.number, told.did, told.before, told.after) == (1, "redriven", None, None)
    assert told.settings == (ChangedSetting("limit", after=5), ChangedSetting("reason"))
    assert len(made.changes) == 1


def stored(offset: int, tenant: str, name: str = "orders") -> RecordIn:
    value = ChangeRecord(number=1, tenant=tenant, by=OPS, kind="stream", name=name, did="created")
    raw = msgspec.json.encode(value)
    return RecordIn(Origin(CHANGES, 0, offset), offset * 10, b"", raw, ())


def test_where_changes_lie_is_found_by_tenant_object_and_time() -> None:
    index = ChangeIndex()
    for offset in (2, 4, 300):
        index.take(stored(offset, "acme"))
    index.take(stored(302, "zoo"))
    index.take(stored(600, "acme", "other"))
    index.take(RecordIn(Origin(CHANGES, 0, 601), 0, b"", b"no json", ()))
    assert index.read_to == 602
    orders = ("stream", "orders")
    for asked, places in [
        (AskedChanges(1, tenant="acme"), [(2, 5), (300, 301), (600, 601)]),
        (AskedChanges(1, tenant="nobody"), []),
        (AskedChanges(1, tenant="acme", object=orders), [(2, 5), (300, 301)]),
        (AskedChanges(1, object=orders), [(2, 5), (300, 303)]),
        (AskedChanges(1, tenant="acme", since_ms=41, until_ms=3_001), [(300, 301)]),
        (AskedChanges(1), [(2, 601)]),
        (AskedChanges(1, since_ms=3_001), [(302, 601)]),
        (AskedChanges(1, since_ms=9_000), []),
        (AskedChanges(1, since_ms=50, until_ms=20), []),
    ]:
        assert index.stretches(asked) == places, asked
    index.clear()
    assert (index.read_to, index.stretches(AskedChanges(1, tenant="acme"))) == (0, [])


def test_of_each_tenant_the_index_keeps_no_more_than_there_are_places() -> None:
    index = ChangeIndex()
    index.take(stored(0, "quiet"))
    for offset in range(1, 2 * KEPT_MAX + 11):
        index.take(stored(offset, "loud"))
    ((first, end),) = index.stretches(AskedChanges(1, tenant="loud"))
    assert KEPT_MAX <= end - first < 2 * KEPT_MAX
    assert index.stretches(AskedChanges(1, tenant="quiet")) == [(0, 1)]
