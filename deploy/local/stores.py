"""Says of the embedded stack where archives are kept: one store, which everybody may use."""

import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from deploy.local.stack_settings import FOLDERS, STORES, StackSettings
from shared.config.outside.store import ALL_TENANTS
from shared.runtime.archive.stores import FOLDERS_VARIABLE, STORES_VARIABLE, read_stores
from shared.runtime.files.whole_file import write_whole

# What pipelines call it.
STORE = "archive"


def write_stores(settings: StackSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """What pipelines are told; nothing if somebody has a file of stores of his own."""
    if STORES_VARIABLE in environ:
        return {}
    where = settings.archive or str(settings.folder / "archive")
    folder = None if "://" in where else Path(where).absolute()
    url = where if folder is None else f"file://{quote(str(folder))}"
    path, folders = settings.folder / STORES, settings.folder / FOLDERS
    lines = [
        f"# Made anew by each `hifi up`; {STORES_VARIABLE} names another file.",
        f"[{STORE}]",
        f"url = {json.dumps(url)}",
        f"tenants = [{json.dumps(ALL_TENANTS)}]",
    ]
    write_whole(path, "\n".join([*lines, ""]).encode())
    read_stores(path)
    write_whole(folders, f"{folder or settings.folder}\n".encode())
    return {STORES_VARIABLE: str(path), FOLDERS_VARIABLE: str(folder or settings.folder)}
