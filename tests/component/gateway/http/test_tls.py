"""TLS with client certificates: the common name is the tenant; without one it is refused."""

import socket
import ssl
from pathlib import Path

import httpx
import pytest

from gateway.server import api_config
from gateway.settings import Settings
from shared.config.configuration import Configuration, Stream
from shared.event.topics import stream_topic
from shared.runtime.serving import server as serving
from shared.runtime.setup_error import SetupError
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, running_gateway
from tests.support.servers.authority import Authority


def test_the_certificate_says_which_tenant_it_is(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server_cert, server_key = authority.sign("gateway")
    settings = Settings(
        auth="keys",
        tls_cert_file=server_cert,
        tls_key_file=server_key,
        tls_client_ca_file=authority.file,
    )
    streams = {"theirs": Stream("theirs", tenant="acme"), "ours": Stream("ours")}
    publisher = FakePublisher([stream_topic(name) for name in streams])
    with running_gateway(publisher, FixedConfig(Configuration(streams=streams)), settings) as found:

        def post(stream: str, client: tuple[Path, Path] | None) -> int:
            context = ssl.create_default_context(cafile=str(authority.file))
            if client is not None:
                context.load_cert_chain(*client)
            url = f"https://127.0.0.1:{found.port}/v1/streams/{stream}/events"
            return httpx.post(url, json=[{"id": "a"}], verify=context, timeout=10).status_code

        acme = authority.sign("acme")
        assert post("theirs", acme) == 200
        assert post("ours", acme) == 404
        assert post("theirs", None) == 401
        assert post("theirs", authority.sign("No Tenant")) == 401
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        with pytest.raises(httpx.TransportError):
            post("theirs", Authority(elsewhere).sign("acme"))


@pytest.mark.parametrize("given", [{"tls_cert_file": "a"}, {"tls_client_ca_file": "a"}])
def test_half_of_a_setting_is_one_sentence(given: dict[str, Path]) -> None:
    async def app(*_: object) -> None: ...

    with pytest.raises(SetupError, match="TLS"):
        api_config(app, Settings(**given))  # type: ignore[arg-type]  # pydantic reads texts


def test_who_never_agrees_on_tls_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_TLS_WITHIN_S", 0.5)
    cert, key = Authority(tmp_path).sign("gateway")
    settings = Settings(auth="off", tls_cert_file=cert, tls_key_file=key)
    with (
        running_gateway(FakePublisher([]), FixedConfig(), settings) as found,
        socket.create_connection(("127.0.0.1", found.port), timeout=20) as silent,
    ):
        # Only this deadline can close it: the client waits longer, and the server also used to.
        assert silent.recv(1) == b""
