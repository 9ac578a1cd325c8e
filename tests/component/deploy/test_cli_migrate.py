"""`hifi migrate` reports old names, and changes files only when it is asked to."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from deploy.cli.commands import app
from shared.runtime.setup_error import OperatorError, UsageError

OLD = "HIFI_OBSERVE_SETTLE_S=90\r\nPATH=/bin\r\n"
NEW = "HIFI_OBSERVE_CHECK_AFTER_S=90\r\nPATH=/bin\r\n"


def migrate(*arguments: str | Path, **environ: str) -> Result:
    result = CliRunner().invoke(app, ["migrate", *map(str, arguments)], env=environ)
    if isinstance(result.exception, OperatorError):
        raise result.exception
    return result


@pytest.fixture
def variables(tmp_path: Path) -> Path:
    path = tmp_path / "hifi.env"
    path.write_bytes(OLD.encode())
    path.chmod(0o600)
    return path


def test_it_reports_and_changes_nothing(variables: Path) -> None:
    ended = migrate(variables)
    assert ended.exit_code == 3
    assert ended.stdout == (
        f"{variables}:1: HIFI_OBSERVE_SETTLE_S is now HIFI_OBSERVE_CHECK_AFTER_S.\n"
    )
    assert variables.read_bytes() == OLD.encode()


def test_with_write_it_replaces_them_and_keeps_the_old_text(variables: Path) -> None:
    ended = migrate(variables, "--write")
    assert ended.exit_code == 0
    assert variables.read_bytes() == NEW.encode()
    copy = variables.with_name("hifi.env.orig")
    assert copy.read_bytes() == OLD.encode()
    assert [path.stat().st_mode & 0o777 for path in (variables, copy)] == [0o600, 0o600]
    again = migrate(variables, "--write")
    assert (again.exit_code, again.stderr) == (0, "No old name is left.\n")
    assert copy.read_bytes() == OLD.encode()


def test_an_earlier_copy_is_never_overwritten(variables: Path) -> None:
    copy = variables.with_name("hifi.env.orig")
    copy.write_text("of last year")
    with pytest.raises(UsageError, match="exists already"):
        migrate(variables, "--write")
    assert (variables.read_bytes(), copy.read_text()) == (OLD.encode(), "of last year")


def test_a_name_that_is_set_twice_is_left(variables: Path) -> None:
    text = f"{OLD}HIFI_OBSERVE_CHECK_AFTER_S=120\r\n"
    variables.write_bytes(text.encode())
    ended = migrate(variables, "--write")
    assert ended.exit_code == 3
    assert "HIFI_OBSERVE_CHECK_AFTER_S, which the file sets, too" in ended.stdout
    assert variables.read_bytes() == text.encode()
    assert not variables.with_name("hifi.env.orig").exists()


def test_the_environment_is_reported() -> None:
    ended = migrate("--environment", HIFI_RETRIER_SLOTS="4")
    assert ended.exit_code == 3
    assert ended.stdout == (
        "The environment has HIFI_RETRIER_SLOTS, which is now HIFI_RETRIER_TASK_PLACES.\n"
    )
    assert migrate("--environment").exit_code == 0


def test_what_it_cannot_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Name a file"):
        migrate()
    with pytest.raises(UsageError, match="cannot be read"):
        migrate(tmp_path / "none.env")
    with pytest.raises(UsageError, match="cannot be read"):
        migrate(tmp_path)
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"\x89PNG\xff")
    with pytest.raises(UsageError, match="not a text in UTF-8"):
        migrate(picture)
