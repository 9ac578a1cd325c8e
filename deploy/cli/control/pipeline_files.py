"""Reads documents from files, and their secrets from the environment."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shared.config.outside.database import change_passwords
from shared.runtime.files.document_text import Document, document_of, documents_of
from shared.runtime.setup_error import UsageError


def read_document(path: Path) -> Document:
    """Read the document in a file; - is standard input."""
    raw, name = _read(path)
    return document_of(raw, name)


def read_documents(path: Path, *, bytes_max: int) -> list[Document]:
    """Read all documents in a file."""
    raw, name = _read(path)
    return documents_of(raw, name, bytes_max=bytes_max)


def _read(path: Path) -> tuple[bytes, str]:
    """Return the file's contents, and its name for messages."""
    name = "standard input" if path == Path("-") else str(path)
    try:
        return sys.stdin.buffer.read() if path == Path("-") else path.read_bytes(), name
    except OSError as error:
        raise UsageError(f"{name} cannot be read ({error.strerror}).") from error


def to_put(
    document: Document, change: Callable[..., dict[str, Any]] = change_passwords
) -> dict[str, Any]:
    """Return a document's fields with secrets filled in; UsageError if a variable is not set.

    `change`: the function that knows where documents of this kind have secrets.
    """

    def secret(path: str, *given: Any) -> Any:
        value = given[-1]
        if not isinstance(value, dict) or set(value) != {"env"}:
            return value
        text = os.environ.get(str(value["env"]))
        if text is None:
            place = document.place("/" + path.replace(".", "/"))
            raise UsageError(f"{place}: the variable {value['env']} is not set.")
        return text

    return change(document.fields, secret)
