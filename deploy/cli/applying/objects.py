"""Reads objects of any kind from files, in the order in which they can be created."""

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
# A shell expands `-f *.yaml` into one option value and more arguments.
MoreFiles = Annotated[list[Path] | None, typer.Argument(metavar="FILE", help="More files.")]

_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
# A schema has at most 256 Ki characters, and a file may hold several streams with schemas.
_FILE_BYTES_MAX = 4 * 1_048_576


def _none_in(fields: Mapping[str, Any], _: Callable[..., Any]) -> dict[str, Any]:
    return dict(fields)


# In the order of creation: an object may need objects of earlier kinds. The function of each kind
# knows where its secrets are.
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
        """The object's path at the gateway."""
        fields = self.document.fields
        if self.kind == "destination":
            return "streams", fields["stream"], "destinations", fields["name"]
        return f"{self.kind}s", fields["name"]

    @property
    def title(self) -> str:
        """The name for people: `stream/orders`, `destination/orders/shop`."""
        return "/".join((self.kind, *self.path[1::2]))

    def line(self, pointer: str) -> str:
        """Return the file and line of the part at a pointer."""
        return f"{self.document.name}:{self.document.line(pointer)}"

    @property
    def rank(self) -> int:
        return _RANKS[self.kind]

    @property
    def secrets(self) -> Change:
        """The function that replaces the secrets of this kind of object."""
        return _KINDS[self.kind]

    def body(self) -> dict[str, Any]:
        """Return the body to PUT, with its secrets."""
        fields = to_put(self.document, self.secrets)
        return {name: value for name, value in fields.items() if name != "kind"}


def read_wanted(files: Sequence[Path], more: Sequence[Path]) -> list[FileObject]:
    """Return all objects of these files; raise UsageError with the line if one is wrong."""
    if not files and not more:
        raise UsageError("Name a file: -f FILE, or -f - for standard input.")
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
            raise UsageError(f"{each.line('/name')}: {each.title} is already at {where}.")
    return sorted(wanted, key=attrgetter("rank"))


def _files_at(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    inside = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES)
    if not inside:
        raise UsageError(f"{path} contains no file named *.yaml, *.yml or *.json.")
    return inside


def _wanted(document: Document) -> FileObject:
    fields = document.fields
    # A pipeline's document, as `hifi pipelines put` takes it, needs no "kind".
    kind: Any = fields.get("kind", "pipeline" if "from" in fields else None)
    if kind == "key":
        wrong = "keys cannot be applied: their text is shown only once, by `hifi keys create`"
        raise UsageError(f"{document.place('/kind')}: {wrong}.")
    if not isinstance(kind, str) or kind not in _KINDS:
        is_said = "it is missing" if kind is None else f"there is no kind {kind!r}"
        raise UsageError(f"{document.place('/kind')}: {is_said}; kinds are {', '.join(_KINDS)}.")
    for name in ("name", *(["stream"] if kind == "destination" else [])):
        if not isinstance(fields.get(name), str) or not fields[name]:
            raise UsageError(f"{document.place(f'/{name}')}: it is missing, or not a text.")
    return FileObject(kind, document)
