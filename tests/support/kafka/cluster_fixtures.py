"""Gives tests a real embedded Kafka: one broker for the session, three for a module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy.local.cluster import Cluster
from shared.runtime.java.cache_folder import default_cache
from shared.runtime.java.jars import ensure_jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def jars_cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the cache with both jar sets, downloaded once if this machine has none."""
    cache = default_cache()
    ensure_jars("broker", cache=cache)
    ensure_jars("spark", cache=cache)
    if request.config.getoption("--part") is not None:
        # Other tests need not load Spark for this.
        from tests.support.suite.class_archives import make_class_archives  # noqa: PLC0415

        make_class_archives(cache, tmp_path_factory.mktemp("first-of-all"))
    return cache


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory, jars_cache: Path) -> Iterator[Cluster]:
    """Run one broker for all tests of the session: give every topic a name of its own."""
    with Cluster(folder=tmp_path_factory.mktemp("kafka"), cache=jars_cache) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka_three(tmp_path_factory: pytest.TempPathFactory, jars_cache: Path) -> Iterator[Cluster]:
    """Run three brokers; a test that stops one must restart it and wait until all are in sync."""
    folder = tmp_path_factory.mktemp("kafka-three")
    cluster = Cluster(folder=folder, cache=jars_cache, brokers=3)
    cluster.start()
    try:
        yield cluster
    finally:
        # Nobody reads the data again, and in an orderly stop the last broker may wait for a quorum.
        cluster.stop(timeout_s=0)
