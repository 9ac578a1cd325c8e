"""Names the author of a change: a key, a token, a certificate, or Hifi itself."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

AuthorKind: TypeAlias = Literal["key", "token", "certificate", "anybody", "operator", "hifi"]


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a change: a key by its name, a token by its subject, or Hifi itself."""

    tenant: str
    kind: AuthorKind = "anybody"
    name: str = ""
