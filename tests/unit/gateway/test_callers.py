"""A caller who showed a key once is remembered while the keys and the key itself stay valid."""

from dataclasses import replace

import pytest

from gateway.callers import Callers
from gateway.fleet.key_uses import KeyUses
from gateway.problems import Problem
from gateway.settings import Settings
from shared.config.access import ApiKey, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig

TEXT = new_text(kind="secret", key_id="one", entropy=bytes(20))
OTHER = new_text(kind="secret", key_id="one", entropy=bytes([1] * 20))
KEY = ApiKey("one", (secret_from(TEXT, signs=False),), tenant="acme", expires_at_ms=1_000)


def callers_of(*keys: ApiKey) -> tuple[Callers, FixedConfig]:
    streams = {"orders": Stream("orders", tenant="acme")}
    config = FixedConfig(Configuration(streams=streams, keys={key.id: key for key in keys}))
    return Callers(config, Settings(auth="keys"), KeyUses(FakePublisher([]))), config


def test_a_key_is_looked_up_once_while_the_keys_stay_the_same() -> None:
    callers, config = callers_of(KEY)
    caller = callers.of_key(TEXT, now_ms=1)
    assert callers.of_key(TEXT, now_ms=2) is caller
    config.configuration = Configuration(keys={"one": replace(KEY, tenant="other")})
    assert (caller.tenant, callers.of_key(TEXT, now_ms=3).tenant) == ("acme", "other")


def test_a_key_that_is_known_ends_when_it_says_or_is_removed() -> None:
    callers, config = callers_of(KEY)
    assert callers.of_key(TEXT, now_ms=999).tenant == "acme"
    for now_ms in (1_000, 2_000):
        with pytest.raises(Problem, match="expired"):
            callers.of_key(TEXT, now_ms=now_ms)
    config.configuration = Configuration()
    with pytest.raises(Problem, match="no such key"):
        callers.of_key(TEXT, now_ms=1)


def test_what_is_no_key_stays_none_beside_one_that_is_known() -> None:
    callers, _ = callers_of(KEY)
    callers.of_key(TEXT, now_ms=1)
    for text in (OTHER, TEXT[:-1], TEXT.upper(), "", "\xff"):
        with pytest.raises(Problem):
            callers.of_key(text, now_ms=1)


def test_each_use_of_a_key_that_is_good_is_noted() -> None:
    callers, _ = callers_of(KEY)
    used = callers.uses.here
    headers = {b"authorization": f"Bearer {TEXT}"}
    known = callers.writer(headers, "orders", now_ms=1, known=None)
    assert used == {KEY.secrets[0].fingerprint: 1}
    # This also holds where the connection is known, and nothing is looked up.
    assert callers.writer(headers, "orders", now_ms=2, known=known) is known
    assert set(used.values()) == {2}
    for text, now_ms in ((TEXT, 1_000), (OTHER, 3)):
        with pytest.raises(Problem):
            callers.of_key(text, now_ms=now_ms)
    assert set(used.values()) == {2}
