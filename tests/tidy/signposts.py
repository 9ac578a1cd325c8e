"""Finds the files and names that a document points to, and reports those that do not exist.

A path begins at the root, or in the folder of the path before it: in the same paragraph, item or
row, or in the head of the table. A bare name may also be the only file of that name.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

_SUFFIXES = "py|md|toml|lock|json|yaml|js|go|patch|svg"
_FILE = re.compile(rf"(?:[\w.-]+/)*[\w.-]+\.(?:{_SUFFIXES})")
_FOLDER = re.compile(r"(?:[\w.-]+/)+[\w.-]*")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")
# Such words are our names even without parentheses: an underscore, an inner capital, or a dot.
_TELLING = re.compile(r"\w+_\w+|_\w+|[A-Z]+[a-z]+[A-Z]\w*|\w+\.\w[\w.]*")
_TOKEN = re.compile(r"`(?P<code>[^`\n]+)`(?P<after>\*{0,2}(?:: | files)?)|(?P<bracket>[()])")
_FENCE = re.compile(r"^[ ]*```.*?^[ ]*```[ ]*$", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s")
_TOPIC = "hifi."
_TOPICS = "shared/event/topics.py"


@dataclass
class Reading:
    """A reader's place in a paragraph: the folders to search, and the last file named."""

    # The folders that the head of the table names, and the folder of the last path from the root.
    of_head: list[str]
    folder: str = "."
    file: str = ""
    # The word after a file and a colon is a name in that file.
    is_name_next: bool = False


class Signposts:
    """The files of the repository, by their paths: documents may point to these."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files
        self._folders = {str(at) for path in files for at in PurePosixPath(path).parents}

    def wrong_in(self, document: str) -> Iterator[str]:
        """Yield each path or name that leads nowhere, or to several files, with its line."""
        for line, head, words in _units(document):
            for wrong in self._wrong_in_unit(head, words):
                yield f"{line}: {wrong}"

    def wrong_paths_in(self, document: str) -> Iterator[str]:
        """Yield each path from the root, and each Python file, that does not exist anywhere."""
        for line, _, words in _units(document):
            for code in re.findall(r"`([^`\n]+)`", words):
                is_ours = self._is_from_root(code) or code.endswith(".py")
                is_there = self._place(code, []) or self._fitting(code)
                if is_ours and self._is_path(code) and not is_there:
                    yield f"{line}: {code} is nowhere"

    def _wrong_in_unit(self, head: str, words: str) -> Iterator[str]:
        at, depth = Reading([self._folder_of(place) for place in self._paths_from_root(head)]), 0
        for token in _TOKEN.finditer(words):
            code = token["code"]
            if code is None:
                depth += 1 if token["bracket"] == "(" else -1
            elif self._is_path(code):
                yield from self._wrong_path(code, token["after"], at)
            else:
                is_of_file = at.is_name_next or depth > 0
                at.is_name_next = False
                yield from self._wrong_code(code, at.file, is_of_file=is_of_file)

    def _wrong_path(self, code: str, after: str, at: Reading) -> Iterator[str]:
        place, fitting = self._place(code, [at.folder, *at.of_head]), self._fitting(code)
        at.is_name_next = after.endswith(": ")
        if not place and fitting and after.endswith(" files"):
            return
        if not place and len(fitting) != 1:
            yield f"{code} is {f'one of {fitting}' if fitting else 'nowhere'}"
            return
        at.file = place or fitting[0]
        if place == code.rstrip("/"):
            at.folder = self._folder_of(place)

    def _wrong_code(self, code: str, file: str, *, is_of_file: bool) -> Iterator[str]:
        if " " in code:
            paths = filter(self._is_from_root, code.split())
            yield from (f"{path} is nowhere" for path in paths if not self._place(path, []))
        elif code.startswith(_TOPIC):
            if code.split(".")[1] not in self._files[_TOPICS]:
                yield f"{code} is no topic"
        elif _NAME.fullmatch(code):
            yield from self._wrong_name(code, file if is_of_file else "", is_of_file=is_of_file)

    def _wrong_name(self, name: str, file: str, *, is_of_file: bool) -> Iterator[str]:
        if file in self._files:
            if not _defines(self._files[file], name):
                yield f"{file} has no {name}"
        elif (is_of_file or _TELLING.fullmatch(name)) and not self._is_defined(name):
            yield f"{name} is defined nowhere"

    def _is_defined(self, name: str) -> bool:
        if name.replace(".", "/") in self._stems:
            return True
        return any(_defines(text, name) for path, text in self._files.items() if path[-3:] == ".py")

    @cached_property
    def _stems(self) -> set[str]:
        return {path.removesuffix(".py") for path in self._files}

    def _is_path(self, code: str) -> bool:
        is_folder = _FOLDER.fullmatch(code) and (code.endswith("/") or self._is_from_root(code))
        return bool(_FILE.fullmatch(code) or is_folder)

    def _is_from_root(self, code: str) -> bool:
        first, slash, _ = code.partition("/")
        return bool(slash) and first in self._folders and first != "."

    def _place(self, code: str, folders: list[str]) -> str:
        """Return the path from the root, or an empty text if there is none."""
        path = code.rstrip("/")
        if PurePosixPath(path).stem.isupper() and not self._is_there(path):
            # NAME stands for any file.
            path = str(PurePosixPath(path).parent)
        places = [path, *(f"{folder}/{path}" for folder in folders)]
        return next(filter(self._is_there, places), "")

    def _is_there(self, path: str) -> bool:
        return path in self._files or path in self._folders

    def _fitting(self, code: str) -> list[str]:
        return [path for path in self._files if path.endswith(f"/{code}")]

    def _paths_from_root(self, words: str) -> list[str]:
        found = (it.rstrip("/") for it in re.findall(r"`([^`\n]+)`", words) if self._is_path(it))
        return [path for path in found if self._is_there(path)]

    def _folder_of(self, path: str) -> str:
        return path if path in self._folders else str(PurePosixPath(path).parent)


def _units(document: str) -> Iterator[tuple[int, str, str]]:
    """Yield paragraphs, items and rows, each with its line and the head of its table."""
    document = _FENCE.sub(lambda block: "\n" * block.group().count("\n"), document)
    begins, head, words = 1, "", list[str]()
    for number, line in enumerate([*document.splitlines(), ""], 1):
        is_row = line.lstrip().startswith("|")
        if words and (is_row or not line.strip() or line[0] == "#" or _ITEM.match(line)):
            yield begins, "", " ".join(words)
            words = []
        if is_row:
            head = head or line
            yield number, head, line
            continue
        head = ""
        if line.strip():
            begins = begins if words else number
            words.append(line)


def _defines(text: str, name: str) -> bool:
    return all(
        re.search(rf"\b(?:def|class) {part}\b|(?<![\w.]){part}\s*(?::|=(?!=))", text)
        for part in name.split(".")
    )
