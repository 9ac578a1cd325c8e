"""API keys (text, stored parts, permissions), quotas and request signatures."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.config.access import (
    ENTROPY_BYTES,
    ApiKey,
    KeyKind,
    KeyText,
    Secret,
    Tenant,
    hash_of,
    is_signed,
    new_text,
    read_text,
    secret_from,
    signature,
    signing_key_of,
)
from shared.config.configuration import Configuration
from shared.config.model import ConfigError, config_error
from shared.event.topics import NAME_PATTERN

NOW_MS = 1_750_000_000_000
TEXT = new_text(kind="secret", key_id="shop_1", entropy=bytes(range(ENTROPY_BYTES)))
SHOWN = KeyText("secret", "shop_1", TEXT)
KEY = ApiKey("shop_1", (secret_from(TEXT, signs=False),))
BROWSER = ApiKey("web", KEY.secrets, kind="browser", origins=frozenset({"https://shop.example"}))

names = st.from_regex(NAME_PATTERN, fullmatch=True)
kinds: st.SearchStrategy[KeyKind] = st.sampled_from(["secret", "browser"])
chance = st.binary(min_size=ENTROPY_BYTES, max_size=ENTROPY_BYTES)


def test_a_key_is_written_like_this() -> None:
    assert TEXT == "hifisk_shop_1_000102030405060708090a0b0c0d0e0f1011121397415fdd"


@given(kinds, names, chance)
def test_a_key_says_its_kind_and_id(kind: KeyKind, key_id: str, entropy: bytes) -> None:
    text = new_text(kind=kind, key_id=key_id, entropy=entropy)
    assert read_text(text) == KeyText(kind, key_id, text)


@given(st.integers(0, len(TEXT) - 1), st.characters())
def test_one_wrong_character_is_noticed_without_a_list(at: int, other: str) -> None:
    wrong = TEXT[:at] + other + TEXT[at + 1 :]
    assert wrong == TEXT or read_text(wrong) is None


@pytest.mark.parametrize("text", ["", TEXT[:-1], TEXT + "0", " " + TEXT, TEXT.upper(), "hifisk_"])
def test_what_is_not_all_of_a_key_is_none(text: str) -> None:
    assert read_text(text) is None


def test_only_a_hash_is_kept_and_no_text_can_be_found_in_it() -> None:
    stored = KEY.to_json().decode()
    assert TEXT[-48:-8] not in stored
    assert hash_of(TEXT) in stored
    kept = {"hash": hash_of(TEXT), "signing_key": "", "link_key": ""}
    assert json.loads(stored)["secrets"] == [kept]


def test_a_text_is_good_for_its_own_key_only() -> None:
    assert KEY.secret_of(SHOWN) == KEY.secrets[0]
    assert replace(KEY, id="other").secret_of(SHOWN) is None
    assert KEY.secret_of(replace(SHOWN, kind="browser")) is None
    assert KEY.secret_of(replace(SHOWN, text=TEXT + "x")) is None


def test_two_texts_are_good_while_one_replaces_the_other() -> None:
    second, third = Secret(hash_of("second")), Secret(hash_of("third"))
    rotated = KEY.with_new(second)
    assert rotated.secrets == (*KEY.secrets, second)
    assert rotated.with_new(third).secrets == (second, third)
    assert rotated.with_newest_only().secrets == (second,)


def test_a_key_expires_to_the_millisecond() -> None:
    limited = replace(KEY, expires_at_ms=NOW_MS)
    assert limited.is_live(NOW_MS - 1)
    assert not limited.is_live(NOW_MS)
    assert KEY.is_live(NOW_MS)


@given(
    st.builds(
        ApiKey,
        id=names,
        tenant=names,
        secrets=st.just((Secret("0" * 64), Secret("f" * 64, "s"))),
        scopes=st.sets(st.sampled_from(["write", "read", "admin"]), min_size=1).map(frozenset),
        streams=st.frozensets(names, max_size=3),
        origins=st.frozensets(st.sampled_from(["https://a.example", "http://[::1]:8080"])),
        expires_at_ms=st.none() | st.integers(0, NOW_MS),
        must_sign=st.booleans(),
    )
)
def test_a_key_is_the_same_after_the_config_topic(key: ApiKey) -> None:
    read = Configuration().apply(key.config_key, key.to_json())
    assert read.keys == {key.id: key}
    assert read.apply(key.config_key, None).keys == {}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"id": "A"}, "id"),
    ({"tenant": ""}, "tenant"),
    ({"kind": "other"}, "kind"),
    ({"scopes": frozenset()}, "scopes"),
    ({"scopes": frozenset({"all"})}, "scopes"),
    ({"streams": frozenset({"No"})}, "streams"),
    ({"origins": frozenset({"https://shop.example/"})}, "origins"),
    ({"origins": frozenset({"*"})}, "origins"),
    ({"expires_at_ms": 1.5}, "expires_at_ms"),
    ({"must_sign": 1}, "must_sign"),
    ({"secrets": ()}, "secrets"),
    ({"secrets": (Secret("0" * 64),) * 3}, "secrets"),
]


@pytest.mark.parametrize(("changed", "said"), WRONG)
def test_a_wrong_setting_is_named(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        replace(KEY, **changed)
    assert config_error(caught.value.errors()[0]).setting.split(".")[0] == said


def test_a_secret_is_kept_as_a_hash_only() -> None:
    with pytest.raises(ConfigError) as caught:
        ApiKey.of({"id": "a", "secrets": [{"hash": "plain"}]})
    assert caught.value.setting == "secrets.0.hash"
    assert "plain" not in str(caught.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"scopes": frozenset({"write", "read"})},
        {"origins": frozenset()},
        {"must_sign": True},
    ],
)
def test_a_browser_key_can_only_write_from_its_pages(changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        replace(BROWSER, **changed)
    assert config_error(caught.value.errors()[0]).setting == "kind"


@pytest.mark.parametrize(
    "value",
    [
        b"{}",
        b"[]",
        b'{"id": "a", "secrets": "x"}',
        b'{"id": "a", "secrets": [{"hash": 5}]}',
        b'{"id": "a", "secrets": [{"other": 5}]}',
        b'{"id": "a", "secrets": [], "scopes": "write"}',
        b'{"id": "a", "secrets": [], "scopes": [1]}',
        b'{"id": "a", "secrets": [], "unheard": 1}',
    ],
)
def test_a_broken_key_is_a_config_error_and_nothing_else(value: bytes) -> None:
    with pytest.raises(ConfigError):
        Configuration().apply(b"key:a", value)


def test_a_tenant_is_the_same_after_the_config_topic() -> None:
    tenant = Tenant("acme", requests_per_s=5, events_per_s=2.5)
    read = Configuration().apply(tenant.config_key, tenant.to_json())
    assert read.tenants == {"acme": tenant}
    assert read.apply(b"tenant:acme", b"").tenants == {}


@pytest.mark.parametrize("rate", [0, -1, "5", True, 2e12, float("nan")])
def test_a_rate_is_a_number_above_zero(rate: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        Tenant("acme", bytes_per_s=rate)
    assert config_error(caught.value.errors()[0]).setting == "bytes_per_s"


def signed(body: bytes = b"{}", *, at_s: int = NOW_MS // 1000, key: str = "") -> str:
    mac = signature(key or signing_key_of(TEXT), timestamp_s=at_s, body=body)
    return f"t={at_s},v1={mac}"


def is_right(header: str, body: bytes = b"{}") -> bool:
    return is_signed(header, signing_key=signing_key_of(TEXT), body=body, now_ms=NOW_MS)


def test_a_signature_is_over_the_time_and_the_body() -> None:
    assert is_right(signed())
    assert not is_right(signed(), b"{ }")
    assert not is_right(signed().replace("t=175", "t=176"))
    assert not is_right(signed(key="another"))


def test_one_right_signature_of_several_will_do() -> None:
    assert is_right(signed() + ",v1=00")
    assert is_right("v0=11, " + signed())


@pytest.mark.parametrize("off_s", [-300, 300])
def test_a_signature_may_be_five_minutes_off(off_s: int) -> None:
    assert is_right(signed(at_s=NOW_MS // 1000 + off_s))
    assert not is_right(signed(at_s=NOW_MS // 1000 + off_s + (1 if off_s > 0 else -1)))


@pytest.mark.parametrize(
    "header", ["", "t=,v1=", "t=x,v1=y", "v1=00", "t=1,t=2,v1=0", "t=1750000000"]
)
def test_a_broken_signature_is_wrong_and_no_error(header: str) -> None:
    assert not is_right(header)


def test_signing_keys_are_kept_only_for_keys_that_sign() -> None:
    assert secret_from(TEXT, signs=True).signing_key == signing_key_of(TEXT)
    assert secret_from(TEXT, signs=False).signing_key == ""


def test_what_a_newer_hifi_says_of_a_text_stays_with_that_text() -> None:
    (first,) = KEY.to_fields()["secrets"]
    newer = {**KEY.to_fields(), "secrets": [{"hash": first["hash"], "ends_at_ms": 17}]}
    key = ApiKey.of(newer)
    assert ApiKey.of(key.to_fields()) == key
    rotated = key.with_new(secret_from(TEXT + "x", signs=True))
    second = rotated.secrets[1]
    assert rotated.to_fields()["secrets"] == [
        {"hash": first["hash"], "ends_at_ms": 17},
        {"hash": second.hash, "signing_key": second.signing_key, "link_key": ""},
    ]
    assert rotated.with_newest_only().to_fields()["secrets"] == rotated.to_fields()["secrets"][1:]
    # A list in a stored record may hold anything: the reader skips items that it does not know.
    odd = replace(KEY, others={"secrets": [17, {"colour": "red"}], "scopes": [{"a": 1}]})
    assert odd.to_fields() == KEY.to_fields()


def test_a_scope_that_there_is_not_is_named_as_it_was_written() -> None:
    with pytest.raises(ConfigError, match=r"^scopes\.0: 'banana' should be 'write'"):
        ApiKey.of({**json.loads(KEY.to_json()), "scopes": ["banana"]})
