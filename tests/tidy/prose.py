"""Finds the English in documents, docstrings, comments and strings, sentence by sentence."""

import ast
import re
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from tests.tidy.sources import parsed

# A string with fewer words than this is a name, a key or a label, unless it ends like a sentence.
_WORDS_MIN = 3
_FENCE = re.compile(r"^\s*(```|~~~)")
_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+(?=[A-Z`*\"'(])|(?<=[.!?])\s+")
_CODE = re.compile(r"``?[^`]+``?")
_MARKUP = re.compile(r"\]\([^)]*\)|[*_`\[\]]{1,3}")
_LIST_ITEM = re.compile(r"^\s*(?:[-*]|\d+[.)])\s+")
_TABLE_RULE = re.compile(r"^[\s|:-]+$")


class Sentence(NamedTuple):
    """A sentence of ours, and its place."""

    line: int
    # "docs", "docstrings", "comments" or "strings".
    kind: str
    text: str


def sentences(path: str, text: str) -> Iterator[Sentence]:
    """Yield everything in a file that a person reads as English."""
    if path.endswith(".md"):
        yield from _of_document(text)
    elif path.endswith(".py"):
        yield from _of_python(text)
    elif path.endswith((".js", ".mjs", ".go", ".ts")):
        yield from _of_comments(text, "//", "/**", "*")
    elif path.endswith((".toml", ".yaml", ".yml", "Makefile")):
        yield from _of_comments(text, "#")


def split(text: str) -> list[str]:
    """Split a paragraph into sentences, without Markdown; code counts as a name."""
    plain = _MARKUP.sub("", _CODE.sub("Code", text.replace("\n", " ")))
    return [part for part in map(str.strip, _SENTENCE_END.split(plain)) if part]


def _of_document(text: str) -> Iterator[Sentence]:
    lines: list[tuple[int, str]] = []
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            is_code = not is_code
            lines.append((number, ""))
        elif is_code or line.startswith("    ") or _TABLE_RULE.match(line):
            lines.append((number, ""))
        elif line.lstrip().startswith("|"):
            # Each cell is a text of its own.
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
            lines += [(number, part) for cell in cells if cell for part in (cell, "")]
        elif _LIST_ITEM.match(line) or line.startswith("#"):
            lines += [(number, ""), (number, _LIST_ITEM.sub("", line).lstrip("# "))]
        else:
            lines.append((number, line))
    for is_text, block in groupby(lines, key=lambda it: bool(it[1].strip())):
        if is_text:
            rows = list(block)
            yield from _paragraph(rows[0][0], "docs", " ".join(line.strip() for _, line in rows))


def _of_python(text: str) -> Iterator[Sentence]:
    nodes = list(ast.walk(parsed(text)))
    docstrings = {
        node.body[0].value
        for node in nodes
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and ast.get_docstring(node, clean=False) is not None
        and isinstance(node.body[0], ast.Expr)
    }
    formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    pieces = {piece for node in formatted for piece in node.values}
    plain = [
        node
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in pieces
    ]
    for constant in plain:
        words = str(constant.value)
        if constant in docstrings:
            yield from _paragraphs(constant.lineno, "docstrings", words)
        elif _is_prose(words):
            yield from _paragraphs(constant.lineno, "strings", words)
    for node in formatted:
        parts = (part.value if isinstance(part, ast.Constant) else "Code" for part in node.values)
        if _is_prose(words := "".join(map(str, parts))):
            yield from _paragraphs(node.lineno, "strings", words)
    # A line that begins with the sign may be part of a string.
    strings = {
        line
        for node in (*plain, *formatted)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    yield from (it for it in _of_comments(text, "#") if it.line not in strings)


def _of_comments(text: str, *signs: str) -> Iterator[Sentence]:
    """Yield comments; consecutive lines are one paragraph."""
    begins, run = 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        sign, _, words = line.strip().partition(" ")
        if sign in signs and words:
            begins = begins if run else number
            run.append(words.removesuffix("*/").strip())
        elif run:
            yield from _paragraph(begins, "comments", " ".join(run))
            run = []


def _paragraphs(line: int, kind: str, text: str) -> Iterator[Sentence]:
    for paragraph in re.split(r"\n\s*\n", text):
        yield from _paragraph(line, kind, paragraph)


def _paragraph(line: int, kind: str, text: str) -> Iterator[Sentence]:
    for sentence in split(text):
        yield Sentence(line, kind, sentence)


def _is_prose(text: str) -> bool:
    words = re.findall(r"[A-Za-z']+", text)
    is_code = re.search(r"[<>{}=\\/]{2,}|^\s*(SELECT|INSERT|CREATE|UPDATE|DELETE)\b", text)
    return not is_code and (len(words) >= _WORDS_MIN or bool(re.match(r"[A-Z][a-z]+ .*\.$", text)))
