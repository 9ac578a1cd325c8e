"""All of Hifi on a Kafka whose users log in by password, token, certificate, or AWS identity.

A token lasts shorter than the test, so that every connection must log in again; nothing is lost,
and nothing arrives twice.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from deploy.local.stack import Stack
from shared.config.destination import Destination
from shared.event.rights import OPERATOR
from shared.runtime.kafka.logins.msk import tokens_for
from tests.support.deploy.cli_runs import run
from tests.support.deploy.stack_fixtures import (
    QUICK_INTERVALS,
    RunningHifi,
    stack_settings,
)
from tests.support.kafka.login_lock import (
    AWS_IDENTITY,
    Login,
    LoginLock,
    MskLock,
    token_service,
)
from tests.support.servers.scripted_destination import Reply, Request, scripted_destination

pytestmark = [
    pytest.mark.integration,
    # As in test_secure.py: a loop that ends leaves the end of a TLS connection to the garbage
    # collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TOKEN_S = 10
EVENTS = 2_000
# As many requests fail at first, so that their events go through the retrier.
FAILED = 3
# Longer than two logins last.
SENDING_S = 25.0
PIPELINE = {"from": {"stream": "way"}, "to": [{"stream": "copies"}]}


@pytest.fixture
def aws_identity(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give this process, and those that it starts, the identity that our MSK lets in."""
    for name, value in AWS_IDENTITY.items():
        monkeypatch.setenv(name, value)
    tokens_for.cache_clear()
    yield
    tokens_for.cache_clear()


@pytest.fixture
def open_msk(
    aws_identity: None,  # noqa: ARG001 - it is in the environment
    tmp_path: Path,
    jars_cache: Path,
) -> Iterator[tuple[RunningHifi, MskLock]]:
    """Start all of Hifi on a Kafka behind a door that is like Amazon MSK."""
    settings = replace(stack_settings(tmp_path / "data", jars_cache), secure=True)
    with ExitStack() as resources:
        stack = Stack(settings, environ={**os.environ, **QUICK_INTERVALS}, say=lambda _: None)
        lock = MskLock(settings.folder / "kafka" / "lock", stack.cluster, resources)
        stack.cluster.lock, lock.login_s = lock, TOKEN_S
        stack.start(lambda _: None)
        resources.callback(stack.stop)
        yield RunningHifi(stack), lock


@pytest.fixture(params=["PLAIN", "OAUTHBEARER", "mTLS"])
def open_hifi(
    request: pytest.FixtureRequest, tmp_path: Path, jars_cache: Path
) -> Iterator[RunningHifi]:
    """Start all of Hifi on a Kafka with this way to log in."""
    login: Login = request.param
    settings = replace(stack_settings(tmp_path / "data", jars_cache), secure=True)
    with ExitStack() as resources:
        patch = resources.enter_context(pytest.MonkeyPatch.context())
        stack = Stack(settings, environ={**os.environ, **QUICK_INTERVALS}, say=lambda _: None)
        lock = LoginLock(settings.folder / "kafka" / "lock", login)
        stack.cluster.lock = lock
        if login == "OAUTHBEARER":
            lock.make()
            serving = token_service(lock.secrets, token_s=TOKEN_S)
            lock.issuer, lock.login_s = resources.enter_context(serving), TOKEN_S
            allowed = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
            patch.setenv("JDK_JAVA_OPTIONS", f"-D{allowed}={lock.issuer}/jwks,{lock.issuer}/token")
        stack.start(lambda _: None)
        resources.callback(stack.stop)
        yield RunningHifi(stack)


def test_every_event_goes_its_whole_way(open_hifi: RunningHifi) -> None:
    send_and_balance(open_hifi)


def test_every_event_goes_its_whole_way_through_msk(
    open_msk: tuple[RunningHifi, MskLock],
) -> None:
    hifi, lock = open_msk
    send_and_balance(hifi)
    # Each kind of client has logged in again.
    assert lock.door.logins["OAUTHBEARER"] > SENDING_S / TOKEN_S
    assert lock.door.logins["AWS_MSK_IAM"] > SENDING_S / TOKEN_S


def send_and_balance(hifi: RunningHifi) -> None:
    """Send events for longer than two logins last, and wait until all have arrived."""

    def fail_first(number: int, _: Request) -> Reply:
        return Reply(503 if number < FAILED else 200)

    with (
        scripted_destination() as at_once,
        scripted_destination(fail_first) as later,
        scripted_destination() as copies,
    ):
        hifi.add(Destination(stream="way", name="at-once", url=at_once.url))
        hifi.add(Destination(stream="way", name="later", url=later.url))
        hifi.add(Destination(stream="copies", name="it", url=copies.url))
        answer = httpx.put(f"{hifi.gateway}/v1/pipelines/copy", json=PIPELINE, timeout=30)
        assert answer.status_code in {200, 201}, answer.text
        begun_s, count = time.monotonic(), 0
        while time.monotonic() - begun_s < SENDING_S or count < EVENTS:
            answer = hifi.post("way", [{"id": f"e{count + nth}"} for nth in range(20)])
            assert answer.status_code == 200, answer.text
            count += 20
            time.sleep(0.1)
        for name in ("way/at-once", "way/later", "copies/it"):
            books = hifi.wait_for_balance(
                name, lambda b: b.delivered == count, what=f"all is at {name}"
            )
            assert books.waiting == books.dead == books.queued == books.unaccounted == 0
        for destination in (at_once, copies):
            assert len(destination.accepted_ids) == count


def test_a_refused_token_is_one_sentence_within_seconds(tmp_path: Path, jars_cache: Path) -> None:
    settings = replace(stack_settings(tmp_path / "data", jars_cache), secure=True)
    with ExitStack() as resources:
        lock = LoginLock(settings.folder / "kafka" / "lock", "OAUTHBEARER")
        lock.make()
        right = resources.enter_context(token_service(lock.secrets, token_s=60))
        wrong = resources.enter_context(
            token_service(lock.secrets, token_s=60, audience="somebody-else")
        )
        lock.issuer, lock.login_s = right, 60
        patch = resources.enter_context(pytest.MonkeyPatch.context())
        allowed = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
        patch.setenv("JDK_JAVA_OPTIONS", f"-D{allowed}={right}/jwks,{right}/token")
        stack = Stack(settings, environ=dict(os.environ), say=lambda _: None)
        stack.cluster.lock = lock
        stack.cluster.start()
        resources.callback(stack.cluster.stop)
        variables = lock.variables(OPERATOR)
        kafka = {"HIFI_KAFKA": stack.cluster.bootstrap_servers}
        for changed, says in (
            ({"HIFI_KAFKA_TOKEN_URL": f"{wrong}/token"}, "does not take the token of operator"),
            ({"HIFI_KAFKA_PASSWORD": "wrong"}, "gives no token: the token service answers 401"),
            ({"HIFI_KAFKA_TOKEN_URL": "http://127.0.0.1:1/token"}, "gives no token"),
        ):
            is_refused_in_a_sentence(says, tmp_path / "runs", variables | kafka | changed)


def test_a_refused_aws_identity_is_one_sentence_within_seconds(
    aws_identity: None,  # noqa: ARG001 - it is in the environment
    tmp_path: Path,
    jars_cache: Path,
) -> None:
    settings = replace(stack_settings(tmp_path / "data", jars_cache), secure=True)
    with ExitStack() as resources:
        stack = Stack(settings, environ=dict(os.environ), say=lambda _: None)
        lock = MskLock(settings.folder / "kafka" / "lock", stack.cluster, resources)
        stack.cluster.lock, lock.login_s = lock, 60
        stack.cluster.start()
        resources.callback(stack.cluster.stop)
        variables = AWS_IDENTITY | lock.variables(OPERATOR)
        kafka = {"HIFI_KAFKA": stack.cluster.bootstrap_servers}
        for changed, says in (
            (
                {"AWS_SECRET_ACCESS_KEY": "wrong"},
                "must allow kafka-cluster:Connect on this cluster",
            ),
            ({"AWS_REGION": ""}, "names no AWS region"),
        ):
            is_refused_in_a_sentence(says, tmp_path / "runs", variables | kafka | changed)


def is_refused_in_a_sentence(says: str, folder: Path, env: Mapping[str, str]) -> None:
    begun_s = time.monotonic()
    ended = run("topics", folder=folder, env=env)
    assert ended.wait() == 1
    assert time.monotonic() - begun_s < 10
    assert says in " ".join(ended.err.split()), ended.err
    assert "Traceback" not in ended.err
