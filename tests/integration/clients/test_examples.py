"""The examples run as they are: the senders' events arrive at each of the receivers."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import httpx
import pytest

from deploy.local.ports import pick_free
from shared.config.destination import Destination
from tests.support.deploy.java_sources import java_program
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.suite.programs import has_express, need_express
from tests.tidy import sources

pytestmark = pytest.mark.integration

PYTHON, JAVASCRIPT, JAVA = (
    sources.ROOT / "examples" / name for name in ("python", "javascript", "java")
)
STREAM = "of-the-examples"
SECRET = "whsec_YWxsIGV4YW1wbGVzIGhhdmUgYSBzZWNyZXQ="
# `{port}` stands for the port to listen on.
RECEIVERS: dict[str, tuple[Path, list[str]]] = {
    "fastapi": (PYTHON, [sys.executable, "-m", "uvicorn", "receive_fastapi:app", "--port={port}"]),
    "flask": (
        PYTHON,
        [sys.executable, "-m", "flask", "--app=receive_flask", "run", "--port={port}"],
    ),
    "express": (JAVASCRIPT, ["node", "receive_express.js"]),
    "plain": (JAVASCRIPT, ["node", "receive_http.js"]),
    "java": (JAVA, []),
}
SENDERS = (
    [sys.executable, str(PYTHON / "send.py")],
    [sys.executable, str(PYTHON / "send_async.py")],
    ["node", str(JAVASCRIPT / "send.js")],
)
# The load tests install Flask, and npm installs Express.
HAS_FLASK, HAS_EXPRESS = find_spec("flask") is not None, has_express()
MISSING = {
    *(() if HAS_FLASK else ("flask",)),
    *(() if HAS_EXPRESS else ("express", "plain")),
}


@dataclass
class Receiving:
    port: int
    lines: list[str] = field(default_factory=list)


@contextmanager
def receiving(folder: Path, argv: list[str]) -> Iterator[Receiving]:
    """Run one of the examples' receivers, with the printed ids of events."""
    (port,) = pick_free(1)
    process = subprocess.Popen(
        [each.format(port=port) for each in argv],
        cwd=folder,
        env={**os.environ, "HIFI_SIGNING_SECRET": SECRET, "PORT": str(port)},
        stdout=subprocess.PIPE,
        text=True,
    )
    found = Receiving(port)
    assert process.stdout is not None
    reader = Thread(
        target=lambda out: found.lines.extend(map(str.strip, out)), args=[process.stdout]
    )
    reader.start()
    try:
        wait_until(lambda: _answers(port), what=f"{argv} listens")
        yield found
    finally:
        process.terminate()
        process.wait(30)
        reader.join(30)
        process.stdout.close()


def _answers(port: int) -> bool:
    try:
        # The request is unsigned, and therefore refused.
        return httpx.post(f"http://127.0.0.1:{port}/hifi", content=b"[]").status_code == 401
    except httpx.TransportError:
        return False


def test_what_each_example_sends_arrives_at_each_that_receives(
    hifi: RunningHifi, tmp_path: Path
) -> None:
    stream = f"{hifi.gateway}/v1/streams/{STREAM}"
    httpx.put(stream, json={}, timeout=30).raise_for_status()
    with ExitStack() as resources:
        started: dict[str, Receiving] = {}
        for name, (folder, argv) in RECEIVERS.items():
            if name in MISSING:
                continue
            command = argv or java_program(folder / "Receive.java", tmp_path)
            started[name] = resources.enter_context(receiving(folder, command))
            url = f"http://127.0.0.1:{started[name].port}/hifi"
            settings = {"url": url, "signing_secrets": [SECRET], "compression": "gzip"}
            path = f"{stream}/destinations/{name}"
            httpx.put(path, content=json.dumps(settings), timeout=30).raise_for_status()
            hifi.added.append(Destination(STREAM, name, url))
        ids: list[str] = []
        for sender in SENDERS if HAS_EXPRESS else SENDERS[:-1]:
            ended = subprocess.run(
                [*sender, hifi.gateway, STREAM],
                cwd=tmp_path,
                capture_output=True,
                check=True,
                text=True,
                timeout=60,
            )
            told = [line.split() for line in ended.stdout.splitlines()]
            assert [each[1] for each in told] == ["accepted"] * 3, ended.stdout
            ids += [each[0] for each in told]
        for name, found in started.items():
            wait_until(partial(_has_all, found, ids), what=f"all of {ids} are at {name}")
    need_express()
    if not HAS_FLASK:
        pytest.skip("the load tests' packages are not installed (make test)")


def _has_all(found: Receiving, ids: list[str]) -> bool:
    # Servers print other lines, too.
    return set(ids) <= set(found.lines)
