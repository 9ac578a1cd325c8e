"""Reads objects of any kind from files, in the order in which they can be made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import typer

from deploy.cli.control.pipeline_files import read_documents, to_put
from shared.config.credentials import change_secrets
from shared.config.outside.database import change_passwords
from shared.runtime.files.document_text import Document
from shared.runtime.setup_error import UsageError

Change = Callable[..., dict[str, Any]]

Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file", "-f", help="A file, or a folder of *.yaml, *.yml, *.json; - for standard input."
    ),
]
# So that a shell may write them out: `-f *.yaml`.
MoreFiles = Annotated[list[Path] | None, typer.Argument(metavar="FILE", help="More of them.")]

_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
# A schema has 256 Ki characters at most, and a file may have some streams with one.
_FILE_BYTES_MAX = 4 * 1_048_576


def _none_in(fields: Mapping[str, Any], _: Callable[..., Any]) -> dict[str, Any]:
    return dict(fields)


# In the order in which they can be made: one may need those before it. Beside each, what knows
# where it has secrets.
_KINDS: Mapping[str, Change] = {
    "tenant": _none_in,
    "stream": _none_in,
    "table": _none_in,
    "destination": change_secrets,
    "pipeline": change_passwords,
    "channel": change_secrets,
}
_RANKS = {kind: rank for rank, kind in enumerate(_KINDS)}


@dataclass(frozen=True, slots=True)
class FileObject:
    """One object of a file."""

    kind: str
    document: Document

    @property
    def path(self) -> tuple[str, ...]:
        """Where the gateway has it."""
        fields = self.document.fields
        if self.kind == "destination":
            return "streams", fields["stream"], "destinations", fields["name"]
        return f"{self.kind}s", fields["name"]

    @property
    def title(self) -> str:
        """For people: `stream/orders`, `destination/orders/shop`."""
        return "/".join((self.kind, *self.path[1::2]))

    def line(self, pointer: str) -> str:
        """Return the file and the line of a part of it."""
        return f"{self.document.name}:{self.document.line(pointer)}"

    @property
    def rank(self) -> int:
        return _RANKS[self.kind]

    @property
    def secrets(self) -> Change:
        """The function that replaces the secrets of this kind of object."""
        return _KINDS[self.kind]

    def body(self) -> dict[str, Any]:
        """What to PUT, with its secrets."""
        fields = to_put(self.document, self.secrets)
        return {name: value for name, value in fields.items() if name != "kind"}


def read_wanted(files: Sequence[Path], more: Sequence[Path]) -> list[FileObject]:
    """Everything in these files; UsageError with the line, if one of them cannot be read."""
    if not files and not more:
        raise UsageError("Say which file: -f FILE, or -f - for standard input.")
    wanted = [
        _wanted(document)
        for path in (*files, *more)
        for file in _files_at(path)
        for document in read_documents(file, bytes_max=_FILE_BYTES_MAX)
    ]
    there: dict[str, FileObject] = {}
    for each in wanted:
        before = there.setdefault(each.title, each)
        if before is not each:
            where = before.line("/name")
            raise UsageError(f"{each.line('/name')}: {each.title} is at {where} already.")
    return sorted(wanted, key=attrgetter("rank"))


def _files_at(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    inside = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES)
    if not inside:
        raise UsageError(f"{path} holds no file named *.yaml, *.yml or *.json.")
    return inside


def _wanted(document: Document) -> FileObject:
    fields = document.fields
    # A pipeline's document as `hifi pipelines put` takes it needs no other word.
    kind: Any = fields.get("kind", "pipeline" if "from" in fields else None)
    if kind == "key":
        wrong = "a key's text is shown once, to whoever makes it: `hifi keys create`"
        raise UsageError(f"{document.place('/kind')}: {wrong}.")
    if not isinstance(kind, str) or kind not in _KINDS:
        is_said = "it is missing" if kind is None else f"there is no kind {kind!r}"
        raise UsageError(f"{document.place('/kind')}: {is_said}; there are {', '.join(_KINDS)}.")
    for name in ("name", *(["stream"] if kind == "destination" else [])):
        if not isinstance(fields.get(name), str) or not fields[name]:
            raise UsageError(f"{document.place(f'/{name}')}: it is missing, or no text.")
    return FileObject(kind, document)
