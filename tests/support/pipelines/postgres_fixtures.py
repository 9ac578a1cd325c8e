"""Gives tests a real Postgres, with a database for each test that asks."""

import uuid
from collections.abc import Iterator

import pytest

from pipelines.databases.database import Server
from tests.support.pipelines.postgres_process import (
    PASSWORD,
    USER,
    PostgresProcess,
    running_postgres,
)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresProcess]:
    """Run one server for all tests; a test that kills it starts it again."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def database(postgres: PostgresProcess) -> str:
    """Create a database that no other test has."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    postgres.run(f'CREATE DATABASE "{name}"', database="postgres")
    return name


def server_of(postgres: PostgresProcess, database: str, **fields: object) -> Server:
    """Return the server's address and password, as a task gets them."""
    known: dict[str, object] = {
        "host": "localhost",
        "port": postgres.port,
        "database": database,
        "user": USER,
        "password": PASSWORD,
        "addresses": ("127.0.0.1",),
        "tls": "off",
    }
    return Server(**{**known, **fields})  # type: ignore[arg-type]
