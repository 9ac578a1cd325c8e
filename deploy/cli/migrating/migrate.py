"""`hifi migrate`: reports the old names in files and in the environment, and replaces them."""

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.migrating.names import SETTINGS
from deploy.cli.migrating.old_names import OldName, old_names, rewritten
from deploy.cli.printing import harmless, out, talk
from shared.runtime.setup_error import UsageError

# Exit code: an old name is left.
_TO_CHANGE = 3


def migrate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Text files: .env, systemd units, YAML, dashboards."),
    ] = None,
    *,
    environment: Annotated[
        bool, typer.Option("--environment", help="Look at this process' variables, too.")
    ] = False,
    write: Annotated[
        bool,
        typer.Option("--write", help="Change the files; each keeps its old text in FILE.orig."),
    ] = False,
) -> None:
    """Find old names of settings, metrics and alerts; with --write, replace them.

    Names that are also common words, such as the label `node`, are only in CHANGELOG.md. Exit code
    3 when something is left to change.

        hifi migrate /etc/hifi/hifi.env compose.yaml

        hifi migrate /etc/systemd/system/hifi-*.service --write

        hifi migrate --environment
    """
    if not files and not environment:
        raise UsageError("Name a file, or use --environment.")
    texts = {path: _text(path) for path in files or ()}
    found = {path: list(old_names(text)) for path, text in texts.items()}
    for path, names in found.items():
        for each in names:
            out.print(_told(path, each))
    left = [each for names in found.values() for each in names if each.is_set_twice or not write]
    if write:
        _write({path: texts[path] for path, names in found.items() if names})
    in_environment = sorted(SETTINGS.keys() & os.environ.keys()) if environment else []
    for name in in_environment:
        out.print(f"The environment has {name}, which is now {SETTINGS[name]}.")
    if left or in_environment:
        raise typer.Exit(_TO_CHANGE)
    talk.print("No old name is left.")


def _text(path: Path) -> str:
    try:
        # Without translation, so that a changed file keeps its line ends.
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a text in UTF-8.") from error


def _told(path: Path, found: OldName) -> str:
    and_then = ", which the file sets, too: remove one of them" if found.is_set_twice else ""
    return harmless(f"{path}:{found.line}: {found.name} is now {found.new_name}{and_then}.")


def _write(texts: dict[Path, str]) -> None:
    """Write new names into files that have old ones, after a copy of each."""
    changed = {path: new for path, old in texts.items() if (new := rewritten(old)) != old}
    copies = {path: path.with_name(f"{path.name}.orig") for path in changed}
    for copy in copies.values():
        if copy.exists():
            raise UsageError(f"{copy} exists already: move it away, and run again.")
    for path, text in changed.items():
        try:
            # With its permissions: a file of variables has passwords.
            shutil.copy2(path, copies[path])
            path.write_text(text, encoding="utf-8", newline="")
        except OSError as error:
            raise UsageError(f"{path} cannot be changed ({error.strerror}).") from error
        talk.print(harmless(f"{path} is changed; its old text is in {copies[path]}."))
