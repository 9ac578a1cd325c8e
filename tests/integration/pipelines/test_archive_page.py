"""The commands of the page about archives give the output that it shows, except for numbers."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.cli.commands import app
from tests.support.deploy.stack_fixtures import PATIENCE_S, RunningHifi, wait_until

pytestmark = pytest.mark.integration

_PAGE = (Path(__file__).parents[3] / "docs" / "archive.md").read_text()
_STREAM = "archive-page"
# Archives of both kinds exist: a new one, and one restored into a stream.
_COMMANDS = 7


def _shown() -> list[tuple[list[str], str]]:
    """Return the page's commands with the output shown for each; Hifi is already running."""
    blocks = re.findall(r"^```console\n(.*?)^```", _PAGE, re.MULTILINE | re.DOTALL)
    found = []
    for part in re.split(r"^\$ ", "".join(blocks), flags=re.MULTILINE)[1:]:
        command, _, says = part.partition("\n")
        words = shlex.split(command.replace("orders", _STREAM), comments=True)
        if words[1] != "up":
            found.append((words[1:], says.replace("orders", _STREAM)))
    return found


def _plain(text: str) -> str:
    """Return the text without numbers, plurals and names that vary."""
    one = re.sub(r"\b(object|event|minute)s\b", r"\1", re.sub(r"\d+", "N", text))
    one = one.replace(f"{_STREAM}-signed", _STREAM)
    return " ".join(one.split())


def test_what_the_page_shows_is_what_comes(hifi: RunningHifi) -> None:
    """Statements are only signed a minute later: tests/component/deploy has that part."""
    assert len(_shown()) == _COMMANDS
    for words, says in _shown():
        if words[:2] != ["archive", "verify"]:
            _run(hifi, words, says)


@pytest.mark.long
def test_what_the_page_shows_of_signed_minutes_is_what_comes(hifi: RunningHifi) -> None:
    for words, says in _shown():
        _run(hifi, [word.replace(_STREAM, f"{_STREAM}-signed") for word in words], says)


def _run(hifi: RunningHifi, words: list[str], says: str) -> None:
    environment = {
        "HIFI_GATEWAY": hifi.gateway,
        "HIFI_KAFKA": hifi.kafka,
        "HIFI_UP_DATA": str(hifi.stack.settings.folder),
    }
    told = [""]

    def is_so() -> bool:
        run = CliRunner().invoke(app, words, env=environment)
        told[0] = f"{run.output}{run.exception or ''}"
        return run.exit_code == 0 and (not says or _plain(run.output) == _plain(says))

    # Events are archived a moment later, and signed another moment later.
    wait_until(is_so, what=lambda: f"{words}: {told[0]}", timeout_s=2 * PATIENCE_S, look_s=1.0)
