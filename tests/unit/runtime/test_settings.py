"""Settings come from the environment; the first wrong one ends the process with a sentence."""

import errno

import pytest

from gateway.settings import Settings
from observe.settings import ConsoleSettings
from shared.runtime.settings import ServiceSettings, operator_errors, read_settings


def refusal(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as caught:
        read_settings(Settings, program="hifi gateway")
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_what_is_set_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIFI_GATEWAY_PORT", "1234")
    assert read_settings(Settings, program="hifi gateway").port == 1234


def test_a_wrong_value_is_named_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HIFI_GATEWAY_PORT", "many")
    assert refusal(capsys).startswith("hifi gateway: HIFI_GATEWAY_PORT is 'many': ")


def test_an_unknown_level_is_refused_and_any_case_is_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HIFI_GATEWAY_LOG_LEVEL", "loud")
    assert "HIFI_GATEWAY_LOG_LEVEL is 'loud'" in refusal(capsys)
    assert ServiceSettings(log_level="WARNING").log_level == "warning"  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["hunter2", "\u00fc"])
def test_a_wrong_secret_key_is_refused_and_not_shown(
    wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HIFI_SECRET_KEYS", wrong)
    said = refusal(capsys)
    assert said.startswith("hifi gateway: HIFI_SECRET_KEYS contains something that is not a key")
    assert wrong not in said


@pytest.mark.parametrize("kind", [ConsoleSettings, Settings])
def test_keys_are_asked_for_until_somebody_says_otherwise(
    kind: type[ConsoleSettings] | type[Settings],
) -> None:
    assert kind(host="127.0.0.1").asks_for_keys, "a proxy may be in front of it"
    assert not kind(host="0.0.0.0", auth="off").asks_for_keys


def test_what_a_command_is_given_counts_more_than_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HIFI_GATEWAY_PORT", "1234")
    assert read_settings(Settings, program="hifi replay", port=5678).port == 5678


def test_a_full_disk_is_told_in_a_sentence_and_other_errors_as_they_are() -> None:
    with (
        pytest.raises(SystemExit, match=r"^hifi retrier: the disk is full .*free some space"),
        operator_errors("hifi retrier"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(FileNotFoundError), operator_errors("hifi retrier"):
        raise FileNotFoundError(errno.ENOENT, "No such file")
