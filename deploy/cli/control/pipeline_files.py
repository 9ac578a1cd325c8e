"""Reads a pipeline's document from a file, and its passwords from the environment."""

import os
import sys
from pathlib import Path
from typing import Any

from shared.config.outside.database import change_passwords
from shared.runtime.files.document_text import Document, document_of
from shared.runtime.setup_error import UsageError


def read_document(path: Path) -> Document:
    """The document of a file; - is standard input."""
    name = "standard input" if path == Path("-") else str(path)
    try:
        raw = sys.stdin.buffer.read() if path == Path("-") else path.read_bytes()
    except OSError as error:
        raise UsageError(f"{name} cannot be read ({error.strerror}).") from error
    return document_of(raw, name)


def to_put(document: Document) -> dict[str, Any]:
    """Its fields with their passwords; UsageError if one is not in the environment."""

    def password(path: str, _: str, given: Any) -> Any:
        if not isinstance(given, dict) or set(given) != {"env"}:
            return given
        found = os.environ.get(str(given["env"]))
        if found is None:
            place = document.place("/" + path.replace(".", "/"))
            raise UsageError(f"{place}: the variable {given['env']} is not set.")
        return found

    return change_passwords(document.fields, password)
