"""Secrets open for their owner with any of the keys, and for nobody else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.values import SEALED_PREFIX
from shared.runtime.secret_box import SecretBox, SecretUnavailableError, new_key
from shared.runtime.settings import SecretSettings
from shared.runtime.setup_error import SetupError

OLD, NEW = new_key(), new_key()
OWNER = "orders/shop"


@given(st.text())
def test_what_is_sealed_opens_again(secret: str) -> None:
    box = SecretBox([OLD])
    sealed = box.seal(secret, owner=OWNER)
    assert sealed.startswith(SEALED_PREFIX)
    assert box.unseal(sealed, owner=OWNER) == secret


def test_nothing_of_a_secret_is_in_its_sealed_text() -> None:
    box = SecretBox([OLD])
    assert box.seal("hunter2", owner=OWNER) != box.seal("hunter2", owner=OWNER)
    assert "hunter2" not in box.seal("hunter2", owner=OWNER)


def test_the_first_key_seals_and_all_of_them_open() -> None:
    before, between, after = SecretBox([OLD]), SecretBox([NEW, OLD]), SecretBox([NEW])
    sealed = before.seal("s", owner=OWNER)
    assert between.unseal(sealed, owner=OWNER) == "s"
    assert not between.is_newest(sealed)
    anew = between.seal("s", owner=OWNER)
    assert between.is_newest(anew)
    assert after.unseal(anew, owner=OWNER) == "s"
    with pytest.raises(SecretUnavailableError, match="none of HIFI_SECRET_KEYS opens"):
        after.unseal(sealed, owner=OWNER)


def test_a_secret_does_not_open_for_another_owner() -> None:
    box = SecretBox([OLD])
    sealed = box.seal("s", owner=OWNER)
    with pytest.raises(SecretUnavailableError, match="another destination"):
        box.unseal(sealed, owner="orders/thief")


def test_without_keys_nothing_is_sealed_or_opened() -> None:
    box = SecretBox([])
    sealed = SecretBox([OLD]).seal("s", owner=OWNER)
    assert not box.has_keys
    assert not box.is_newest(sealed)
    with pytest.raises(SecretUnavailableError, match="no HIFI_SECRET_KEYS"):
        box.seal("s", owner=OWNER)
    with pytest.raises(SecretUnavailableError, match="no HIFI_SECRET_KEYS"):
        box.unseal(sealed, owner=OWNER)


@pytest.mark.parametrize("garbled", ["", "x", SEALED_PREFIX, f"{SEALED_PREFIX}\u00fc"])
def test_what_was_never_sealed_does_not_open(garbled: str) -> None:
    with pytest.raises(SecretUnavailableError):
        SecretBox([OLD]).unseal(garbled, owner=OWNER)


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIFI_SECRET_KEYS", f" {NEW} , {OLD} ,")
    sealed = SecretBox([OLD]).seal("s", owner=OWNER)
    assert SecretSettings().secret_box.unseal(sealed, owner=OWNER) == "s"
    monkeypatch.delenv("HIFI_SECRET_KEYS")
    assert not SecretSettings().secret_box.has_keys


@pytest.mark.parametrize("wrong", ["hunter2", "hunter2" * 10, "\u00fc"])
def test_a_key_that_is_none_is_a_mistake_of_the_set_up(wrong: str) -> None:
    with pytest.raises(SetupError, match="hifi secrets new-key") as caught:
        SecretBox([OLD, wrong])
    assert "hunter2" not in str(caught.value)
