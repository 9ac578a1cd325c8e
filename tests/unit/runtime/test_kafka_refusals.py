"""Each refusal by Kafka is one sentence: who, where, what, and what to do next."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    InvalidTxnState,
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnsupportedSaslMechanismError,
)
from pydantic import SecretStr

from shared.runtime.kafka import refusals
from shared.runtime.kafka.clients import check_access, kafka_errors
from shared.runtime.kafka.connection import _own, learn_access
from shared.runtime.kafka.logins.tokens import NoTokenError
from shared.runtime.kafka.refusals import java_refusal, missing_right, refusal
from shared.runtime.kafka.settings import KafkaAccess
from shared.runtime.setup_error import KafkaRefusedError
from tests.support.servers.authority import Authority

WHERE = "broker:9094"
DELIVERY = KafkaAccess(protocol="SASL_PLAINTEXT", user="delivery", password=SecretStr("hunter2"))


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.runtime.kafka.connection._own", {**_own, WHERE: DELIVERY})


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (ClusterAuthorizationFailedError(), "write to any topic"),
        (TopicAuthorizationFailedError("hifi.dead"), "use the topic hifi.dead"),
        (TopicAuthorizationFailedError({"b", "a"}), "use the topic a, b"),
        (TopicAuthorizationFailedError(), "use a topic"),
        (GroupAuthorizationFailedError("hifi.lane.a"), "use the consumer group hifi.lane.a"),
        (TransactionalIdAuthorizationFailed("hifi-config"), "use the transactional id hifi-config"),
    ],
)
def test_a_right_that_is_missing_is_named(error: KafkaError, what: str) -> None:
    says = (
        f"Kafka at {WHERE} does not let the user delivery {what}:"
        " grant it the rights that docs/kafka.md lists for this service."
    )
    assert missing_right(WHERE, error) == says
    with pytest.raises(KafkaRefusedError) as refused, kafka_errors(WHERE):
        raise error
    assert str(refused.value) == says


def test_a_transaction_that_cannot_be_ended_tells_what_broke_it() -> None:
    ended = InvalidTxnState()
    ended.__context__ = TopicAuthorizationFailedError({"hifi.receipts"})
    assert "use the topic hifi.receipts:" in (missing_right(WHERE, ended) or "")


def test_no_other_error_is_a_right_that_is_missing() -> None:
    assert missing_right(WHERE, KafkaError()) is None
    assert java_refusal(WHERE, "java.lang.IllegalStateException: something broke") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            (
                "kafka.common.errors.TopicAuthorizationException: Not authorized to access"
                " topics: [hifi.stream.orders]\n\tat org..."
            ),
            "use the topic hifi.stream.orders:",
        ),
        (
            "GroupAuthorizationException: Not authorized to access group: hifi-orders-to\n",
            "use the consumer group hifi-orders-to:",
        ),
        (
            (
                "kafka.common.errors.SaslAuthenticationException: Authentication failed"
                " during authentication due to invalid credentials with SASL mechanism SCRAM"
            ),
            "does not let the user delivery log in (SCRAM-SHA-512): check HIFI_KAFKA_USER",
        ),
        (
            (
                "org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed\n"
                "Caused by: PKIX path validation failed"
            ),
            "is not trusted (Java does not trust it): set HIFI_KAFKA_CA_FILE",
        ),
    ],
)
def test_what_a_spark_query_died_of_is_the_same_sentence(text: str, says: str) -> None:
    found = java_refusal(WHERE, text)
    assert found is not None
    assert found.startswith(("Kafka at broker:9094", "The certificate of Kafka at broker:9094"))
    assert says in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (SaslAuthenticationFailed("no"), "does not let the user delivery log in (SCRAM-SHA-512)"),
        (UnsupportedSaslMechanismError(), "set HIFI_KAFKA_MECHANISM to a mechanism that"),
        (ConnectionResetError(), "closes connections with SASL_PLAINTEXT"),
    ],
)
def test_why_a_greeting_failed_is_told(
    error: Exception, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(refusals, "create_conn", refused)
    found = asyncio.run(refusal(WHERE))
    assert found is not None
    assert says in found
    assert "hunter2" not in found
    with pytest.raises(KafkaRefusedError, match="HIFI_KAFKA_"):
        asyncio.run(check_access(WHERE))


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (SaslAuthenticationFailed("Access denied"), "policy must allow kafka-cluster:Connect on"),
        (NoTokenError("This process has no AWS credentials: do it."), "AWS credentials: do it."),
    ],
)
def test_a_login_to_msk_that_fails_says_what_aws_needs(
    error: Exception, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise error

    learn_access([WHERE], KafkaAccess(protocol="SASL_SSL", mechanism="AWS_MSK_IAM"))
    monkeypatch.setattr(refusals, "create_conn", refused)
    found = asyncio.run(refusal(WHERE)) or ""
    assert says in found
    assert "HIFI_KAFKA_USER" not in found


def test_a_broker_that_ends_in_this_moment_has_refused_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happens = [ConnectionResetError(), ConnectionRefusedError()]

    async def ends(*_: object, **__: object) -> None:
        raise happens.pop(0)

    monkeypatch.setattr(refusals, "create_conn", ends)
    monkeypatch.setattr(refusals, "_GREET_AGAIN_S", 0)
    assert asyncio.run(refusal(WHERE)) is None
    assert happens == []


def test_one_broker_that_lets_us_in_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    class Connection:
        async def close(self) -> None:
            pass

    answers = [SaslAuthenticationFailed("not yet"), None]

    async def greeted(*_: object, **__: object) -> Connection:
        if (error := answers.pop(0)) is not None:
            raise error
        return Connection()

    monkeypatch.setattr(refusals, "create_conn", greeted)
    assert asyncio.run(refusal(f"{WHERE},{WHERE}")) is None


def test_an_authority_that_we_do_not_know_is_named(tmp_path: Path) -> None:
    async def look() -> str | None:
        (tmp_path / "other").mkdir()
        certificate, key = Authority(tmp_path).sign("broker")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        async with listening(context) as where:
            other = Authority(tmp_path / "other").file
            learn_access([where], KafkaAccess(protocol="SSL", ca_file=other))
            return await refusal(where)

    says = asyncio.run(look())
    assert says is not None
    assert says.startswith("The certificate of Kafka at 127.0.0.1:")
    assert "is not trusted" in says
    assert says.endswith(
        "set HIFI_KAFKA_CA_FILE to the certificate of the authority that signed it."
    )


def test_a_listener_of_another_protocol_is_told() -> None:
    async def look() -> str | None:
        async with listening(None) as where:
            return await refusal(where)

    assert "closes connections with PLAINTEXT: set HIFI_KAFKA_PROTOCOL" in (
        asyncio.run(look()) or ""
    )


def test_a_kafka_that_is_away_has_refused_nobody() -> None:
    async def look() -> str | None:
        async with listening(None) as where:
            pass
        await check_access(where)
        return await refusal(where)

    assert asyncio.run(look()) is None


@asynccontextmanager
async def listening(context: ssl.SSLContext | None) -> AsyncIterator[str]:
    """Listen, read a greeting, and hang up."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
