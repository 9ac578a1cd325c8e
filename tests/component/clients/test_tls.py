"""A sender over TLS trusts only the configured authority, and shows its own certificate."""

from pathlib import Path

import pytest

from gateway.settings import Settings
from hifi_client import Fate, GatewayError, Sender
from shared.config.configuration import Configuration, Stream
from tests.support.gateway.client_gateways import STREAM, WAIT_S, stored
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, running_gateway
from tests.support.servers.authority import Authority


def test_a_gateway_is_believed_by_its_certificate_and_knows_the_senders(
    publisher: FakePublisher, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    server_cert, server_key = authority.sign("gateway")
    settings = Settings(
        auth="keys",
        tls_cert_file=server_cert,
        tls_key_file=server_key,
        tls_client_ca_file=authority.file,
    )
    config = FixedConfig(Configuration(streams={STREAM: Stream(STREAM, tenant="acme")}))
    with running_gateway(publisher, config, settings) as gateway:
        url = f"https://127.0.0.1:{gateway.port}"
        known = {"ca_file": authority.file, "client_certificate": authority.sign("acme")}
        with Sender(url, STREAM, **known) as hifi:
            assert hifi.send({"id": "a"}).wait(WAIT_S).fate is Fate.ACCEPTED
        with Sender(url, STREAM, ca_file=authority.file) as hifi:
            assert hifi.send({"id": "b"}).wait(WAIT_S).fate is Fate.REJECTED
        with Sender(url, STREAM) as hifi, pytest.raises(GatewayError, match="certificate verify"):
            hifi.check()
    assert stored(publisher) == ["a"]
