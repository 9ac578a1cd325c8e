"""Names the embedded stack's archive store: a single one, which every tenant may use."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from deploy.local.stack_settings import FOLDERS, STORES, StackSettings
from shared.config.outside.store import ALL_TENANTS
from shared.runtime.archive.stores import FOLDERS_VARIABLE, STORES_VARIABLE, read_stores
from shared.runtime.files.whole_file import write_whole
from shared.runtime.secret_box import SecretBox, SecretUnavailableError

# The store's name in pipelines.
STORE = "archive"


def write_stores(settings: StackSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for pipelines; none if the user has a file of stores of their own."""
    if STORES_VARIABLE in environ:
        return {}
    where = settings.archive or str(settings.folder / "archive")
    folder = None if "://" in where else Path(where).absolute()
    url = where if folder is None else f"file://{quote(str(folder))}"
    path, folders = settings.folder / STORES, settings.folder / FOLDERS
    lines = [
        f"# Each `hifi up` writes this file; {STORES_VARIABLE} names another file.",
        f"[{STORE}]",
        f"url = {json.dumps(url)}",
        f"tenants = [{json.dumps(ALL_TENANTS)}]",
    ]
    write_whole(path, "\n".join([*lines, ""]).encode())
    read_stores(path)
    write_whole(folders, f"{folder or settings.folder}\n".encode())
    return {STORES_VARIABLE: str(path), FOLDERS_VARIABLE: str(folder or settings.folder)}


class ResealReport(NamedTuple):
    """The result of resealing the secrets of a file."""

    sealed_anew: int
    already_newest: int
    # The owners of secrets that no key opens.
    not_opened: list[str]


def reseal(path: Path, box: SecretBox) -> ResealReport:
    """Reseal each store's secret with the newest key; the rest of the file does not change."""
    text, anew, newest = path.read_text(), 0, 0
    not_opened = []
    for store in read_stores(path).values():
        if (sealed := store.secret_key) is None:
            continue
        if box.is_newest(sealed):
            newest += 1
            continue
        try:
            secret = box.unseal(sealed, owner=store.owner)
        except SecretUnavailableError:
            not_opened.append(store.owner)
            continue
        text, anew = text.replace(sealed, box.seal(secret, owner=store.owner)), anew + 1
    if anew:
        write_whole(path, text.encode(), mode=path.stat().st_mode & 0o777)
    return ResealReport(anew, newest, not_opened)
