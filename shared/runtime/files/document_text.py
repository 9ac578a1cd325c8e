"""Reads documents in YAML or JSON, with the line of each part.

It accepts only the part of YAML that JSON has: `no` is a string and not false, 12:30 is not a
number of seconds, a date is a string, and aliases are refused.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from shared.config.model import ConfigError
from shared.config.outside.database import change_passwords
from shared.config.pipeline import DOCUMENT_BYTES_MAX, Pipeline
from shared.config.values import SEALED_PREFIX
from shared.runtime.setup_error import UsageError

# Deeper than any document's own parts; the events of tests may have a few levels.
_DEPTH_MAX = 50
_KINDS = frozenset({"map", "seq", "str", "bool", "null", "int", "float"})


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads plain words as JSON does (YAML 1.2, core schema, without its octals)."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - so it is called there


for _tag, _pattern, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"-?(?:0|[1-9][0-9]*)", "-0123456789"),
    ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", "-0123456789"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first)
    )


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a text, and the line (from 1) of each part by its pointer."""

    name: str
    fields: dict[str, Any]
    lines: dict[str, int]

    def pipeline(self) -> Pipeline:
        """Parse a pipeline; raise UsageError with the line if the document is not valid."""
        try:
            # Replace passwords: the check of the rest does not need them.
            pipeline = Pipeline.of(change_passwords(self.fields, lambda *_: SEALED_PREFIX))
        except ConfigError as error:
            pointer = "/" + error.setting.replace(".", "/") if error.setting else ""
            raise UsageError(f"{self.place(pointer)}: {error.wrong}.") from error
        for name in pipeline.others:
            raise UsageError(f"{self.place(f'/{name}')}: there is no such field.")
        return pipeline

    def line(self, pointer: str) -> int | None:
        """Return the line of a part, or of the part around it."""
        at = pointer
        while at and at not in self.lines:
            at = at.rpartition("/")[0]
        return self.lines.get(at)

    def place(self, pointer: str) -> str:
        """Return the place of a part for people: its line and its path."""
        path, number = ".".join(pointer.split("/")[1:]), self.line(pointer)
        line = self.name if number is None else f"{self.name}:{number}"
        return f"{line}: {path}" if path else line


def document_of(raw: bytes, name: str, *, bytes_max: int = DOCUMENT_BYTES_MAX) -> Document:
    """Parse one document; raise UsageError with the line of a mistake."""
    first, *more = documents_of(raw, name, bytes_max=bytes_max)
    if more:
        raise UsageError(
            f"{more[0].place('')}: a second document begins here, but only one is allowed:"
            " `hifi apply -f` takes several."
        )
    return first


def documents_of(raw: bytes, name: str, *, bytes_max: int) -> list[Document]:
    """Parse all documents of a text; a list counts as several documents."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not a text: byte {error.start} is not UTF-8.") from error
    if len(raw) > bytes_max:
        raise UsageError(f"{name} has {len(raw):,} bytes; {bytes_max:,} are the limit.")
    try:
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent):
                line = event.start_mark.line + 1
                raise UsageError(f"{name}:{line}: *{event.anchor} has no equivalent in JSON.")
        roots = [*_roots(text)]
        if not roots or not all(isinstance(root, yaml.MappingNode) for root in roots):
            raise UsageError(f"{name} is not an object: begin with `name: ...`.")
        return [
            Document(
                name,
                lines={"": root.start_mark.line + 1} | dict(_lines(root, name, "", 0)),
                fields=_Loader("").construct_document(root),
            )
            for root in roots
        ]
    except yaml.MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        where = f"{name}:{place.line + 1}" if place else name
        raise UsageError(f"{where}: this is neither YAML nor JSON: {error.problem}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{name} is neither YAML nor JSON: {_first_line(error)}.") from error


def _roots(text: str) -> Iterator[yaml.Node]:
    """Yield each document, and each item of a list; skip empty documents."""
    for root in yaml.compose_all(text, Loader=_Loader):
        if isinstance(root, yaml.SequenceNode):
            yield from root.value
        elif root.tag != "tag:yaml.org,2002:null":
            yield root


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _lines(node: yaml.Node, file: str, pointer: str, depth: int) -> Iterator[tuple[str, int]]:
    """Yield the line of each part; raise UsageError for parts that JSON lacks."""
    line = node.start_mark.line + 1
    if depth > _DEPTH_MAX:
        raise UsageError(f"{file}:{line}: it is nested deeper than {_DEPTH_MAX} levels.")
    if node.tag.removeprefix("tag:yaml.org,2002:") not in _KINDS:
        raise UsageError(f"{file}:{line}: {node.tag} has no equivalent in JSON.")
    if isinstance(node, yaml.MappingNode):
        names: set[str] = set()
        for key, value in node.value:
            name, at = str(key.value), key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise UsageError(f"{file}:{at}: a member's name must be a text.")
            if name in names:
                raise UsageError(f"{file}:{at}: {name!r} is set twice.")
            names.add(name)
            # A name is always a string, even if it looks like a boolean or a number (NO, 1).
            key.tag = "tag:yaml.org,2002:str"
            yield f"{pointer}/{name}", at
            yield from _lines(value, file, f"{pointer}/{name}", depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield f"{pointer}/{index}", value.start_mark.line + 1
            yield from _lines(value, file, f"{pointer}/{index}", depth + 1)
