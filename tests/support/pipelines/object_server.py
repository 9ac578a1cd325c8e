"""Runs an S3 server as a process, one for all tests of archives."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest

from deploy.local.children import Child
from deploy.local.ports import pick_free
from shared.config.outside.store import Store
from shared.runtime.archive.stores import OpenStore, StoreAwayError
from shared.runtime.secret_box import SecretBox, new_key

# Two parts of a suite start their brokers at the same time.
_START_S = 120.0
ACCESS_KEY, SECRET_KEY = "hifi-tests", "not-a-secret-of-anybody"
_PORTS = ("master", "volume", "filer", "s3")
_numbers = count()


@dataclass(frozen=True, slots=True)
class ObjectServer:
    """The address of a server, and the keys to it."""

    endpoint: str
    secret_keys: str

    def store(self, name: str = "backup") -> Store:
        """Return a store with a place of its own there."""
        made = Store(name, f"s3://hifi/{name}-{next(_numbers)}", endpoint=self.endpoint)
        box = SecretBox.of(self.secret_keys)
        sealed = box.seal(SECRET_KEY, owner=made.owner)
        return replace(made, access_key=ACCESS_KEY, secret_key=sealed, region="us-east-1")

    def bucket(self, store: Store) -> OpenStore:
        return OpenStore(store, SecretBox.of(self.secret_keys), folders=None)


@contextmanager
def running_object_server(folder: Path) -> Iterator[ObjectServer]:
    folder.mkdir(parents=True, exist_ok=True)
    identity = {
        "name": "hifi",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    names = [f"{name}.port{more}" for name in _PORTS for more in ("", ".grpc")]
    ports = dict(zip(names, pick_free(len(names)), strict=True))
    argv: list[str | Path] = [
        Path(sys.executable).parent / "weed",
        "server",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-dir={folder}",
        "-s3",
        f"-s3.config={config}",
        "-s3.iam=false",
        "-s3.port.iceberg=0",
        "-volume.max=20",
        "-master.volumeSizeLimitMB=64",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]
    child = Child("object-server", argv, log=folder / "weed.log")
    server = ObjectServer(f"http://127.0.0.1:{ports['s3.port']}", new_key())
    try:
        _wait(server, child)
        yield server
    finally:
        # The server would take half a minute to end by itself.
        child.kill()


def _wait(server: ObjectServer, child: Child) -> None:
    until_s = time.monotonic() + _START_S
    store = server.store("probe")
    while True:
        try:
            server.bucket(store).put_new("ready", b"1")
        except StoreAwayError:
            if not child.alive or time.monotonic() > until_s:
                raise
            time.sleep(0.2)
        else:
            return


@pytest.fixture(scope="session")
def object_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with running_object_server(tmp_path_factory.mktemp("objects")) as server:
        yield server
