"""Gives tests a certificate authority of their own, and certificates that it has signed."""

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

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
        key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None,
        is_authority: bool = False,
        has_names: bool = True,
    ) -> tuple[Path, Path]:
        """Write and return the files with a certificate and with its key."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        now = dt.datetime.fromisoformat("2026-01-01T00:00:00+00:00")
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + 36_500 * DAY)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            # Python checks certificates strictly from 3.13 on, and then requires these.
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(_usage(is_authority=is_authority), critical=True)
        )
        if has_names:
            names = [
                x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                x509.DNSName("shop.example"),
            ]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
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


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
