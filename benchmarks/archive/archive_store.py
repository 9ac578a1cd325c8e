"""The store that benchmarks of archives use, and pipelines that archive streams in it."""

import os

from benchmarks.pipelines.bench import Bench
from shared.config.outside.store import Store
from shared.config.pipeline import Pipeline
from shared.runtime.archive.stores import FOLDERS_VARIABLE, STORES_VARIABLE, OpenStore
from shared.runtime.secret_box import SecretBox


def folder_store(bench: Bench) -> OpenStore:
    """Make a folder, which later processes use as their store `archive`."""
    bench.folder.mkdir(parents=True, exist_ok=True)
    folder, stores = bench.folder / "kept", bench.folder / "stores.toml"
    stores.write_text(f'[archive]\nurl = "file://{folder}"\n')
    os.environ |= {STORES_VARIABLE: str(stores), FOLDERS_VARIABLE: str(folder)}
    return OpenStore(Store("archive", f"file://{folder}"), SecretBox.of(""), folders=folder)


def archive_of(stream: str, name: str) -> Pipeline:
    """Return a pipeline that keeps a whole stream in the store `archive`."""
    return Pipeline.of({"name": name, "from": {"stream": stream}, "to": [{"archive": "archive"}]})
