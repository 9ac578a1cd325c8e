"""Makes the lock of an embedded Kafka: a certificate and its authority, and users' passwords.

All files are made once, at the first start, in the cluster's folder, where only its owner can read
secrets. The authority's key is not stored, so nobody can sign a second certificate.
"""

import datetime as dt
import ipaddress
import json
import secrets
import shlex
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from pydantic import SecretStr

from shared.event.rights import OPERATOR, RIGHTS
from shared.runtime.clock import now_ms
from shared.runtime.defaults import HOST
from shared.runtime.files.whole_file import write_whole
from shared.runtime.kafka.settings import KafkaAccess

# The brokers' own user. It has a password at the clients' listener. Controllers identify each
# other by certificate, because they cannot look users up before an election.
_BROKER = "broker"
_BROKER_NAME = "hifi-broker"
_MECHANISM: Final = "SCRAM-SHA-512"
_PASSWORD_BYTES = 24
# Longer than the life of any machine on which people try Hifi out.
_DAYS = 3_650
# The certificate stays valid if the clock is set back by a day.
_SLACK = dt.timedelta(days=1)


class KafkaLock:
    """The lock in a folder."""

    def __init__(self, folder: Path) -> None:
        self._ca_file = folder / "ca.pem"
        self._broker_file = folder / "broker.pem"
        self._passwords_file = folder / "passwords.json"

    @property
    def is_made(self) -> bool:
        """Whether the lock is complete: the passwords are written last."""
        return self._passwords_file.exists()

    def make(self) -> None:
        """Make the lock if it is not complete."""
        if self.is_made:
            return
        now = dt.datetime.fromtimestamp(now_ms() / 1000, tz=dt.UTC)
        self._ca_file.parent.mkdir(parents=True, exist_ok=True)
        authority, broker = _certificates(now)
        write_whole(self._ca_file, authority)
        write_whole(self._broker_file, broker, mode=0o600)
        passwords = {user: secrets.token_urlsafe(_PASSWORD_BYTES) for user in (_BROKER, *RIGHTS)}
        write_whole(self._passwords_file, json.dumps(passwords).encode(), mode=0o600)

    def access(self, user: str) -> KafkaAccess:
        """Return the access of a user of RIGHTS."""
        return KafkaAccess(
            protocol="SASL_SSL",
            ca_file=self._ca_file,
            cert_file=None,
            mechanism=_MECHANISM,
            user=user,
            password=SecretStr(self._passwords[user]),
        )

    def variables(self, user: str) -> dict[str, str]:
        """Return the access of a user as environment variables."""
        return {
            "HIFI_KAFKA_PROTOCOL": "SASL_SSL",
            "HIFI_KAFKA_CA_FILE": str(self._ca_file),
            "HIFI_KAFKA_MECHANISM": _MECHANISM,
            "HIFI_KAFKA_USER": user,
            "HIFI_KAFKA_PASSWORD": self._passwords[user],
        }

    def write_operator(self, path: Path) -> None:
        """Write a file for a shell to source, which gives `hifi` and others all rights."""
        lines = [
            f"export {name}={shlex.quote(value)}\n"
            for name, value in self.variables(OPERATOR).items()
        ]
        write_whole(path, "".join(lines).encode(), mode=0o600)

    def format_arguments(self) -> Iterator[str]:
        """Yield arguments of Kafka's format step, so that the first start knows its users."""
        for user, password in self._passwords.items():
            yield from ("--add-scram", f"{_MECHANISM}=[name={user},password={password}]")

    def properties(self) -> Mapping[str, object]:
        """Return the settings of a broker's lock, except its listeners."""
        jaas = KafkaAccess.model_construct(
            user=_BROKER, password=SecretStr(self._passwords[_BROKER])
        ).jaas
        return {
            "sasl.enabled.mechanisms": _MECHANISM,
            "sasl.mechanism.inter.broker.protocol": _MECHANISM,
            f"listener.name.sasl_ssl.{_MECHANISM.lower()}.sasl.jaas.config": jaas,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._broker_file,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._ca_file,
            # Only the holder of the single certificate may speak as a controller.
            "listener.name.controller.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            # The operator grants the other users their rights, so it must start with all rights.
            "super.users": f"User:CN={_BROKER_NAME};User:{_BROKER};User:{OPERATOR}",
        }

    @cached_property
    def _passwords(self) -> dict[str, str]:
        kept: dict[str, str] = json.loads(self._passwords_file.read_text())
        return kept


def _certificates(now: dt.datetime) -> tuple[bytes, bytes]:
    """Return an authority's certificate, and the brokers' key and certificate, which it signed."""
    key, broker_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _certificate("hifi-kafka-authority", key, key, now=now, is_authority=True)
    broker = _certificate(_BROKER_NAME, broker_key, key, now=now, is_authority=False)
    shown = broker_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return authority, shown + broker


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    now: dt.datetime,
    is_authority: bool,
) -> bytes:
    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    builder = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named("hifi-kafka-authority"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + dt.timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        # From Python 3.13 on, the strict check of certificates requires these extensions.
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=not is_authority,
                key_cert_sign=is_authority,
                crl_sign=is_authority,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if not is_authority:
        names = [x509.IPAddress(ipaddress.ip_address(HOST)), x509.DNSName("localhost")]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM)
