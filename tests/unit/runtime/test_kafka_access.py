"""Access to Kafka is read from the environment, and no output shows the secret."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from pydantic import SecretStr

from shared.runtime.kafka.connection import (
    _own,
    access_to,
    client_connection,
    learn_access,
    spark_connection,
)
from shared.runtime.kafka.logins.msk import tokens_for
from shared.runtime.kafka.settings import JAAS_VARIABLE, KafkaAccess, kafka_access
from shared.runtime.kafka.spark_options import range_options, sink_options
from shared.runtime.setup_error import SetupError
from tests.support.servers.authority import Authority

SECRET = 'hunter2 "\\'


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("shared.runtime.kafka.connection._own", dict(_own))
    kafka_access.cache_clear()
    yield
    kafka_access.cache_clear()


def enter(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"HIFI_KAFKA_{name.upper()}", value)
    kafka_access.cache_clear()


def enter_msk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    enter(monkeypatch, protocol="SASL_SSL", mechanism="AWS_MSK_IAM")


def enter_locked(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Authority:
    authority = Authority(folder)
    locked = {"protocol": "SASL_SSL", "ca_file": str(authority.file)}
    enter(monkeypatch, **locked, user="delivery", password=SECRET)
    return authority


def test_without_a_word_nobody_is_asked() -> None:
    assert client_connection("a:1") == {
        "bootstrap_servers": "a:1",
        "security_protocol": "PLAINTEXT",
        "ssl_context": None,
    }
    assert spark_connection("a:1") == {
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "PLAINTEXT",
    }


def test_our_clients_are_told_user_and_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    enter_locked(monkeypatch, tmp_path)
    told = client_connection("a:1")
    assert (told["security_protocol"], told["sasl_mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (told["sasl_plain_username"], told["sasl_plain_password"]) == ("delivery", SECRET)
    assert told["ssl_context"].check_hostname


def test_no_source_or_sink_of_spark_is_told_the_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = enter_locked(monkeypatch, tmp_path)
    for options in (range_options("a:1", {}), sink_options("a:1", name="lane")):
        assert "hunter2" not in str(options)
        assert options["kafka.security.protocol"] == "SASL_SSL"
        assert options["kafka.ssl.truststore.location"] == str(authority.file)
        assert options["kafka.ssl.truststore.type"] == "PEM"
        assert options["kafka.sasl.jaas.config"] == f"${{env:{JAAS_VARIABLE}}}"
        assert options["kafka.config.providers"] == "env"


def test_java_reads_any_secret_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    enter_locked(monkeypatch, tmp_path)
    assert kafka_access().jaas == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="delivery" password="hunter2 \\"\\\\";'
    )


def test_nobody_sees_the_secret_by_chance(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    enter_locked(monkeypatch, tmp_path)
    assert "hunter2" not in repr(kafka_access()) + str(kafka_access().model_dump())


def test_a_certificate_of_ours_is_for_both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("us")
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    enter(monkeypatch, protocol="SSL", ca_file=str(authority.file), cert_file=str(both))
    assert client_connection("a:1")["ssl_context"] is not None
    options = spark_connection("a:1")
    assert options["kafka.ssl.keystore.location"] == str(both)
    assert options["kafka.ssl.keystore.type"] == "PEM"
    assert kafka_access().caller == "the holder of HIFI_KAFKA_CERT_FILE"


def test_our_clients_log_in_to_msk_with_tokens_for_its_region(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enter_msk(monkeypatch)
    told = client_connection("b-1.demo.abc.c2.kafka.eu-west-1.amazonaws.com:9098")
    assert (told["security_protocol"], told["sasl_mechanism"]) == ("SASL_SSL", "OAUTHBEARER")
    assert told["sasl_oauth_token_provider"] is tokens_for("eu-west-1")
    assert "sasl_plain_username" not in told
    assert kafka_access().caller == "the AWS identity of this process"


def test_the_region_is_a_setting_if_the_brokers_names_have_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enter_msk(monkeypatch)
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    kafka_access.cache_clear()
    told = client_connection("kafka.internal.example:9098")
    assert told["sasl_oauth_token_provider"] is tokens_for("eu-west-3")
    told = client_connection("b-1.demo.abc.c2.kafka.eu-west-1.amazonaws.com:9098")
    assert told["sasl_oauth_token_provider"] is tokens_for("eu-west-1")
    words, files = kafka_access().for_another_process()
    assert words == {
        "HIFI_KAFKA_PROTOCOL": "SASL_SSL",
        "HIFI_KAFKA_MECHANISM": "AWS_MSK_IAM",
        "AWS_REGION": "eu-west-3",
    }
    assert files == {}


def test_spark_logs_in_to_msk_with_amazons_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kafka_access().spark_jar_sets == ("spark",)
    enter_msk(monkeypatch)
    options = spark_connection("a:1")
    assert options["kafka.sasl.mechanism"] == "AWS_MSK_IAM"
    assert options["kafka.sasl.jaas.config"] == f"${{env:{JAAS_VARIABLE}}}"
    amazons = "software.amazon.msk.auth.iam"
    assert options["kafka.sasl.client.callback.handler.class"] == (
        f"{amazons}.IAMClientCallbackHandler"
    )
    assert kafka_access().jaas == f"{amazons}.IAMLoginModule required;"
    assert kafka_access().spark_jar_sets == ("spark", "msk")


def test_without_its_package_the_login_to_msk_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shared.runtime.kafka.settings.find_spec", lambda _: None)
    enter_msk(monkeypatch)
    with pytest.raises(SetupError, match="botocore: install Hifi with the extra msk"):
        kafka_access()


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"protocol": "TLS"}, "HIFI_KAFKA_PROTOCOL is 'TLS'"),
        ({"protocol": "SASL_SSL"}, "set HIFI_KAFKA_USER and HIFI_KAFKA_PASSWORD"),
        ({"protocol": "SASL_SSL", "user": "me"}, "set HIFI_KAFKA_USER and HIFI_KAFKA_PASSWORD"),
        ({"password": "hunter2"}, "PLAINTEXT, which has no users: set it to SASL_SSL"),
        ({"ca_file": "/nowhere"}, "not encrypted: set it to SASL_SSL or SSL"),
        ({"protocol": "SSL", "ca_file": "/nowhere"}, "HIFI_KAFKA_CA_FILE is /nowhere, which has"),
        (
            {"protocol": "SSL", "cert_file": __file__},
            f"HIFI_KAFKA_CERT_FILE is {__file__}, which has",
        ),
        ({"protocol": "SSL", "ca_file": __file__}, f"HIFI_KAFKA_CA_FILE is {__file__}"),
        (
            {"protocol": "SASL_SSL", "mechanism": "AWS_MSK_IAM", "password": "hunter2"},
            "uses AWS credentials: remove them",
        ),
        (
            {"protocol": "SASL_PLAINTEXT", "mechanism": "AWS_MSK_IAM"},
            "needs TLS: set HIFI_KAFKA_PROTOCOL to SASL_SSL",
        ),
        ({"mechanism": "AWS_MSK_IAM"}, "needs TLS: set HIFI_KAFKA_PROTOCOL to SASL_SSL"),
        (
            {"protocol": "SASL_SSL", "mechanism": "AWS_MSK_IAM", "token_scope": "kafka"},
            "set HIFI_KAFKA_MECHANISM to OAUTHBEARER",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    variables: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(monkeypatch, **variables)
    with pytest.raises(SetupError) as refused:
        kafka_access()
    assert says in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_the_embedded_kafka_is_entered_as_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's settings are for Kafkas other than the embedded one."""
    own = KafkaAccess(protocol="SASL_PLAINTEXT", user="operator", password=SecretStr("own"))
    learn_access(["here:1"], own)
    enter(monkeypatch, protocol="SASL_PLAINTEXT", user="me", password="hunter2")
    assert client_connection("here:1")["sasl_plain_username"] == "operator"
    assert client_connection("there:1")["sasl_plain_username"] == "me"
    assert access_to("here:1").caller == "the user operator"


def test_a_connection_ends_at_once_though_the_broker_never_says_goodbye(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.sign("broker"))

    def shake_hands(listener: socket.socket, *, until: Event) -> None:
        connection, _ = listener.accept()
        with context.wrap_socket(connection, server_side=True):
            until.wait(10)

    async def close(host: str, port: int) -> None:
        tls = KafkaAccess(protocol="SSL", ca_file=authority.file).tls
        _, writer = await asyncio.open_connection(host, port, ssl=tls)
        writer.close()
        await asyncio.wait_for(writer.wait_closed(), timeout=5)

    with (
        ThreadPoolExecutor() as threads,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        ended = Event()
        broker = threads.submit(shake_hands, listener, until=ended)
        try:
            asyncio.run(close(*listener.getsockname()))
        finally:
            ended.set()
        broker.result()
