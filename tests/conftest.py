"""Gathers the fixtures, each kept in the file that is named after what it starts."""

import functools
import gc
import os
import ssl
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import structlog

pytest_plugins = [
    "tests.support.kafka.cluster_fixtures",
    "tests.support.console.console_fixtures",
    "tests.support.gateway.control_fixtures",
    "tests.support.pipelines.object_server",
    "tests.support.suite.parts",
    "tests.support.pipelines.postgres_fixtures",
    "tests.support.suite.skips",
    "tests.support.deploy.stack_fixtures",
    "tests.support.pipelines.trial_spark",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=30, help="how often the long form kills each")
    parser.addoption(
        "--events", type=int, default=1_000_000, help="how many the long form of archives keeps"
    )
    parser.addoption(
        "--rounds", type=int, default=3, help="how often each worst neighbour is measured"
    )


@pytest.fixture(scope="session", autouse=True)
def _profiles_are_none_of_the_developers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """Keep commands in tests away from any Hifi that a developer has configured at home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIFI_PROFILES", str(tmp_path_factory.mktemp("profiles") / "none.json"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _jvms_compile_quickly() -> Iterator[None]:
    """Save compile time: a JVM that lasts for one test never earns back its optimizing compiler.

    That compiler took two fifths of the processor time of pipeline tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
        yield


@pytest.fixture(scope="session", autouse=True)
def _clients_share_the_certificates() -> Iterator[None]:
    """Share the machine's certificates: reading them takes 20 ms, and tests make many clients."""
    shared = functools.cache(httpx.create_ssl_context)

    def context(*, verify: Any, cert: Any, trust_env: bool) -> ssl.SSLContext:
        is_told = trust_env and os.environ.keys() & {"SSL_CERT_FILE", "SSL_CERT_DIR"}
        if verify is True and cert is None and not is_told:
            return shared()
        return httpx.create_ssl_context(verify, cert, trust_env)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx._transports.default.create_ssl_context", context)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_kafka_client_is_left_open() -> Iterator[None]:
    """Find clients that a test forgot: each complains when it is collected, perhaps too late."""
    yield
    aiokafka = sys.modules.get("aiokafka")
    if aiokafka is None:
        return
    kinds = (aiokafka.AIOKafkaConsumer, aiokafka.AIOKafkaProducer)
    left = [
        one for one in gc.get_objects() if issubclass(type(one), kinds) and one._closed is False
    ]
    assert not left, f"a test has not stopped {left}"


@pytest.fixture(autouse=True)
def _commands_leave_the_logs_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep the output of a command that runs in the tests' own process separate from the logs.

    The command's output is closed when it ends, and every service in the same process would fail at
    its next log line. Also, lines that a service logs meanwhile are not the command's output. So
    log lines go to the standard error of the process itself.
    """
    commands = sys.modules.get("deploy.cli.commands")
    if commands is None:
        yield
        return
    elsewhere = structlog.PrintLoggerFactory(file=sys.__stderr__)
    monkeypatch.setattr(
        commands, "set_up_logs", lambda: structlog.configure(logger_factory=elsewhere)
    )
    structlog.configure(logger_factory=elsewhere)
    for console in (commands.out, commands.talk):
        # Drop the cached one: its width comes from the command that created it.
        vars(console).pop("console", None)
    yield
    structlog.reset_defaults()
