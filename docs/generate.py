"""Writes pages from code and data: states, metrics, commands, the HTTP API, alerts, benchmarks.

`python docs/generate.py` writes them; with `--check` it only reports whether they are current.
"""  # noqa: INP001 - docs/ is not a package

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.main import get_command

from benchmarks import page
from benchmarks.rows import read_rows
from deploy.alerts.rule_file import rule_file
from deploy.cli import commands
from deploy.dashboards.boards import boards
from deploy.release.http_api import current_document
from deploy.scaling.load_query import load_query
from shared import glossary, metric_names
from shared.retry import lifecycle

# Every command has these options, so the page leaves them out.
_EVERYWHERE = frozenset({"--help", "--install-completion"})
FOLDER = Path(__file__).parent
# A chart may only read files in its own folder.
_CHART = "../deploy/chart/files"
_CHECKOUT = Path(commands.__file__).parents[2]

LIFECYCLE = """\
# The life of an event

<!-- Written by docs/generate.py from shared/retry/lifecycle.py: change that, then run it. -->

Every event is in exactly one of these states, and moves only along these arrows. The table in
`shared/retry/lifecycle.py` is the only source, both for the code and for this page.

Hifi is responsible for an event from `stored` on, when the caller learns that it is stored. The
event then ends in `delivered`, or stays in `dead`, with its reason, until somebody sends it again.

![States of an event and the moves between them, up to delivered or dead](pictures/states.svg)

| state | meaning |
|---|---|
{states}

| from | to | when |
|---|---|---|
{moves}
"""

METRICS = """\
# Metrics

<!-- Written by docs/generate.py from shared/metric_names.py: change that, then run it. -->

Each process answers `GET /metrics` in the Prometheus text format. Names follow
`hifi_<service>_<noun>_<unit>`, with `_total` for counters. Every label is a bounded set: a
stream, a destination, a status, a reason; never an event id, a URL or a key.

{table}
"""

GLOSSARY = """\
# Words

<!-- Written by docs/generate.py from shared/glossary.py: change that, then run it. -->

Each word has one meaning, in these pages, in the console and in the commands. The console explains
a word when the pointer or the focus rests on it. Names in the API, in metrics, in topics and in
code do not change when a word changes; the table gives them where they differ.

{table}
"""

COMMANDS = """\
# Every command

<!-- Written by docs/generate.py from the commands themselves: change them, then run it. -->

The output of `hifi COMMAND --help`, in one place. For addresses, profiles, exit codes and
completion see [the command line](commands.md). An option's environment variable is in brackets.

{pages}
"""


def documents() -> Mapping[str, str]:
    """Return every generated file: its path from docs/, and its text."""
    rows, alerts, dashboards = read_rows(), rule_file(), boards()
    return {
        # People write the text of this page; only its figures are generated.
        "benchmarks.md": page.filled(str(_read(FOLDER / "benchmarks.md")), rows),
        **page.pictures(rows),
        "lifecycle.md": LIFECYCLE.format(states=_state_rows(), moves=_move_rows()),
        "command-line.md": COMMANDS.format(pages=_command_pages()),
        "glossary.md": GLOSSARY.format(table=glossary.table()),
        "metrics.md": METRICS.format(table=metric_names.table()),
        "openapi.json": current_document(),
        "../deploy/alerts/hifi.yaml": alerts,
        f"{_CHART}/alerts.yaml": alerts,
        f"{_CHART}/load.promql": load_query(),
        **{
            f"{folder}/{name}": text
            for folder in ("../deploy/dashboards", _CHART)
            for name, text in dashboards.items()
        },
    }


def stale(folder: Path) -> list[str]:
    """Return the documents in a folder that differ from the code."""
    return [name for name, text in documents().items() if _read(folder / name) != text]


def main(arguments: Sequence[str], folder: Path = FOLDER) -> int:
    if "--check" not in arguments:
        for name, text in documents().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        return 0
    behind = stale(folder)
    if behind:
        names = " and ".join(f"docs/{name}" for name in behind)
        sys.stderr.write(f"Out of date: {names}; run: python docs/generate.py\n")
    return 1 if behind else 0


def _state_rows() -> str:
    meanings = lifecycle.MEANINGS.items()
    return "\n".join(f"| `{state.value}` | {meaning} |" for state, meaning in meanings)


def _move_rows() -> str:
    return "\n".join(
        f"| `{state.value}` | `{to.value}` | {move.value} |"
        for state, moves in lifecycle.TABLE.items()
        for move, to in moves.items()
    )


def _command_pages() -> str:
    """Return the text of all commands, in the groups of `hifi --help`."""
    whole: Any = get_command(commands.app)
    parts = []
    for panel, names in commands.PANELS.items():
        parts.append(f"## {panel}")
        for name in names:
            parts += _command(f"hifi {name}", whole.commands[name].loaded())
    return "\n\n".join(parts)


def _command(name: str, command: Any) -> Iterator[str]:
    yield f"### {name}"
    yield inspect.cleandoc(command.help).replace("\f", "").replace("\b", "").strip()
    options = [each for each in command.params if _EVERYWHERE.isdisjoint(each.opts)]
    if options:
        rows = "\n".join(map(_row, options))
        yield f"| option | description | default |\n|---|---|---|\n{rows}"
    for part, its in getattr(command, "commands", {}).items():
        if not its.hidden:
            yield from _command(f"{name} {part}", its)


def _row(option: Any) -> str:
    is_argument = option.param_type_name == "argument"
    names = [option.metavar or option.name.upper()] if is_argument else option.opts
    spellings = ", ".join(f"`{each}`" for each in [*names, *option.secondary_opts])
    variable = f" (`{option.envvar}`)" if option.envvar else ""
    return f"| {spellings} | {_cell(option.help or '')}{variable} | {_default(option)} |"


def _default(option: Any) -> str:
    if option.required:
        return "needed"
    default = option.default
    if default is None or default == "" or isinstance(default, bool) or callable(default):
        return ""
    # The path of the checkout differs between machines.
    return _cell(f"`{str(default).removeprefix(f'{_CHECKOUT}/')}`")


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
