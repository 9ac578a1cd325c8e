"""The examples in docs/sizing.md show the real output of the commands."""

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.cli.commands import app
from tests.tidy import sources

PAGE = sources.ROOT / "docs" / "sizing.md"
# Commands with their outputs, except `hifi size`: a running Kafka's figures vary.
EXAMPLES = [
    (command, output)
    for command, output in re.findall(
        r"^```\n\$ hifi ([^\n]+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    if not command.startswith("size")
]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize(("command", "output"), EXAMPLES, ids=[each[0] for each in EXAMPLES])
def test_an_example_is_what_the_command_says(command: str, output: str, tmp_path: Path) -> None:
    # Use the ratings with which the page was written: better ones change the figures.
    for path in (sources.ROOT / "loadtests" / "ratings").glob("*-by-hand.json"):
        shutil.copy(path, tmp_path)
    result = CliRunner().invoke(app, [*command.split(), "--ratings", str(tmp_path)])
    told = str(result.exception) + "\n" if result.exception else result.stdout
    assert told == output
