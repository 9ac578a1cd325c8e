"""Sets up TLS to destinations, with a client certificate if one is configured.

A private key is never on disk unencrypted. OpenSSL reads keys only from files, so the file is
encrypted with a password that exists only during the call.
"""

import secrets
import ssl
import tempfile

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

# Alerts that object to the receiver's own certificate (RFC 8446, 6.2).
_AGAINST_OURS = {
    "ACCESS_DENIED",
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_UNKNOWN",
    "UNKNOWN_CA",
    "UNSUPPORTED_CERTIFICATE",
}


class CertificateError(ValueError):
    """A certificate and its key cannot be used; the text says why, without revealing the key."""


def client_context(*, offers_http2: bool = False) -> ssl.SSLContext:
    """Return the TLS settings of every connection: the machine's authorities, TLS 1.2 or newer."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2", "http/1.1"] if offers_http2 else ["http/1.1"])
    # The common name must not be checked (RFC 9110, 4.3.4).
    context.hostname_checks_common_name = False
    return context


def identified_context(
    certificate_pem: str, key_pem: str, *, offers_http2: bool = False
) -> ssl.SSLContext:
    """Return the same settings with a client certificate."""
    key = _read_pair(certificate_pem, key_pem)
    password = secrets.token_bytes(32)
    encrypted = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password)
    )
    context = client_context(offers_http2=offers_http2)
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate_pem.encode() + b"\n" + encrypted)
        file.flush()
        try:
            context.load_cert_chain(file.name, password=password)
        except ssl.SSLError as error:
            reason = (error.reason or "no reason given").lower().replace("_", " ")
            raise CertificateError(f"OpenSSL refuses the pair: {reason}") from error
    return context


def refusal_of_ours(error: BaseException | None) -> str | None:
    """Return the peer's objection to our certificate; None for any other error."""
    reason = (error.reason if isinstance(error, ssl.SSLError) else None) or ""
    alert = reason.partition("_ALERT_")[2]
    if alert == "CERTIFICATE_REQUIRED":
        return "the destination asks for a client certificate: set client_certificate"
    if alert not in _AGAINST_OURS:
        return None
    objection = alert.lower().replace("_", " ")
    return f"the destination refuses our client certificate: {objection}"


def check_pair(certificate_pem: str, key_pem: str) -> None:
    """Raise CertificateError unless connections can use the pair."""
    identified_context(certificate_pem, key_pem)


def _read_pair(certificate_pem: str, key_pem: str) -> PrivateKeyTypes:
    try:
        certificate = x509.load_pem_x509_certificates(certificate_pem.encode())[0]
    except (ValueError, IndexError) as error:
        raise CertificateError("certificate_pem is not a certificate in PEM") from error
    try:
        key = load_pem_private_key(key_pem.encode(), password=None)
    except (ValueError, TypeError) as error:
        raise CertificateError("key_pem is not a private key in PEM without a password") from error
    if key.public_key() != certificate.public_key():
        raise CertificateError("key_pem is not the key of certificate_pem")
    return key
