"""TLS with client certificates: the common name is the tenant; without one there is no entry."""

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.server import api_config
from gateway.settings import Settings
from shared.configuration import Configuration, Stream
from shared.runtime.setup_error import SetupError
from shared.topics import stream_topic
from tests.gateway_fixtures import FakePublisher, FixedConfig, running_gateway

DAY = dt.timedelta(days=1)


class Authority:
    """Signs certificates and leaves them in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        self.file, _ = self.sign("authority", key=self._key, is_authority=True)

    def sign(
        self,
        name: str,
        *,
        key: ec.EllipticCurvePrivateKey | None = None,
        is_authority: bool = False,
    ) -> tuple[Path, Path]:
        """The files with a certificate and with its key."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        now = dt.datetime.fromisoformat("2026-01-01T00:00:00+00:00")
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + 36_500 * DAY)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        files = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files


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
