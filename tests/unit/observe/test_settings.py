"""Keys that observe gets by value or from a file, and never prints."""

from pathlib import Path

import pytest

from console.authentication import Authentication
from console.viewers import Session
from observe.audit.signing import PUBLIC, Signer
from observe.settings import ConsoleSettings, ObserveSettings
from shared.config.configuration import Configuration
from shared.runtime.settings import read_settings
from shared.runtime.setup_error import SetupError

KEY = "0123456789abcdef" * 4


def test_two_machines_with_the_same_key_sign_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    monkeypatch.setenv("HIFI_OBSERVE_STATEMENT_KEY_FILE", str(tmp_path / "key"))
    by_file = Signer(tmp_path / "one", key=ObserveSettings().signing_key)
    monkeypatch.delenv("HIFI_OBSERVE_STATEMENT_KEY_FILE")
    monkeypatch.setenv("HIFI_OBSERVE_STATEMENT_KEY", KEY)
    settings = ObserveSettings()
    by_value = Signer(tmp_path / "other", key=settings.signing_key)
    assert by_file.public_key == by_value.public_key
    # People verify with the public key; the private one is written nowhere.
    assert [file.name for file in (tmp_path / "one").iterdir()] == [PUBLIC]
    assert KEY not in repr(settings)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HIFI_OBSERVE_STATEMENT_KEY", "secret-and-wrong"),
        ("HIFI_OBSERVE_CONSOLE_COOKIE_SECRET", "secret-and-short"),
    ],
)
def test_a_wrong_key_is_one_sentence_without_the_key(
    variable: str,
    value: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, value)
    kind = ConsoleSettings if "CONSOLE" in variable else ObserveSettings
    with pytest.raises(SystemExit, match="2"):
        read_settings(kind, program="hifi observe")
    said = capsys.readouterr().err
    assert variable in said
    assert "openssl rand -hex 32" in said
    assert value not in said


def test_a_key_file_that_is_not_there_or_holds_none_is_one_sentence(tmp_path: Path) -> None:
    missing = ObserveSettings(statement_key_file=tmp_path / "missing")
    with pytest.raises(SetupError, match=r"HIFI_OBSERVE_STATEMENT_KEY_FILE is .*cannot be read"):
        _ = missing.signing_key
    (tmp_path / "empty").write_text("nonsense")
    with pytest.raises(SetupError, match="is not an ed25519 key"):
        _ = ObserveSettings(statement_key_file=tmp_path / "empty").signing_key


def test_consoles_with_the_same_secret_know_each_others_sessions() -> None:
    def console(secret: str) -> Authentication:
        return Authentication(Configuration, ConsoleSettings(cookie_secret=secret))

    first, second, stranger = console(KEY), console(KEY), console("")
    session = Session("nonce", until_ms=1, credential="a key")
    cookie = first.cookies.write(session)
    assert second.cookies.read(cookie, now_ms=0) == session
    assert second.cookies.csrf(session) == first.cookies.csrf(session)
    assert stranger.cookies.read(cookie, now_ms=0) is None
