"""Explains in one sentence why Kafka refuses our login or a request, and what to do."""

import asyncio
import re
import ssl
from contextlib import suppress

from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnsupportedSaslMechanismError,
)

from shared.runtime.kafka.connection import access_to
from shared.runtime.kafka.logins.tokens import NoTokenError
from shared.runtime.kafka.settings import KafkaAccess

# Kafka's errors for a missing right, and the kind of resource.
_RIGHTS: dict[type[KafkaError], str] = {
    TopicAuthorizationFailedError: "topic",
    GroupAuthorizationFailedError: "consumer group",
    TransactionalIdAuthorizationFailed: "transactional id",
}
# Matches Java's text for the same errors, in the error of a Spark query.
_JAVA_RIGHTS = re.compile(
    r"Not authorized to access (topics|group|cluster|transactional)[^:\n]*:? ?\[?([^\]\n]*)"
)
_JAVA_KINDS = {"topics": "topic", "group": "consumer group", "transactional": "transactional id"}
_JAVA_LOGIN = ("SaslAuthenticationException", "UnsupportedSaslMechanismException")
_JAVA_TLS = ("SslAuthenticationException", "SSLHandshakeException", "PKIX path")
# A broker answers a greeting in milliseconds, even across an ocean.
_GREETING_TIMEOUT_MS = 2_000
_HANGING_UP = (ConnectionResetError, KafkaConnectionError, ssl.SSLEOFError)
_HANG_UPS, _GREET_AGAIN_S = 2, 0.5


async def refusal(bootstrap_servers: str) -> str | None:
    """Return why Kafka refuses our login; None if it does not, or if no broker answers at all.

    A client only reports that it reached nobody, so another connection is made to learn the reason.
    """
    access = access_to(bootstrap_servers)
    where, error = await _greeted(bootstrap_servers, access)
    for _ in range(_HANG_UPS):
        if not isinstance(error, _HANGING_UP):
            break
        # A stopping broker hangs up as well; a listener with another protocol hangs up each time.
        await asyncio.sleep(_GREET_AGAIN_S)
        where, error = await _greeted(bootstrap_servers, access)
    return None if error is None else _why(error, access, where)


async def _greeted(servers: str, access: KafkaAccess) -> tuple[str, Exception | None]:
    """Return the broker that refused us, and its error; no error if one accepts or none answers."""
    where, refused = "", None
    for host, port, _ in collect_hosts(servers):
        try:
            connection = await create_conn(
                host, port, request_timeout_ms=_GREETING_TIMEOUT_MS, **access.for_client(servers)
            )
        except (KafkaError, OSError, TimeoutError) as error:
            if _why(error, access, ""):
                where, refused = f"{host}:{port}", error
        else:
            with suppress(KafkaError):
                await connection.close()
            return "", None
    return where, refused


def missing_right(bootstrap_servers: str, error: BaseException | None) -> str | None:
    """Return a sentence about the missing right in a client's error; None for other errors.

    It also looks at the causes: a transaction first reports that it cannot be ended.
    """
    if error is None:
        return None
    if isinstance(error, ClusterAuthorizationFailedError):
        # This error means that a producer may not write to any topic: we ask a cluster only that.
        return _no_right(bootstrap_servers, "write to any topic")
    kind = next((words for refused, words in _RIGHTS.items() if isinstance(error, refused)), None)
    if kind is None:
        return missing_right(bootstrap_servers, error.__cause__ or error.__context__)
    named = ", ".join(_names(error.args))
    return _no_right(bootstrap_servers, _use_of(kind, named))


def java_refusal(bootstrap_servers: str, text: str) -> str | None:
    """Return a sentence about a refusal in a Spark query's error; None for other errors."""
    access = access_to(bootstrap_servers)
    if match := _JAVA_RIGHTS.search(text):
        kind, named = match.groups()
        return _no_right(bootstrap_servers, _use_of(_JAVA_KINDS.get(kind, kind), named.strip(" .")))
    if any(sign in text for sign in _JAVA_LOGIN):
        return _bad_login(bootstrap_servers, access)
    if any(sign in text for sign in _JAVA_TLS):
        return _bad_certificate(bootstrap_servers, "Java does not trust it")
    return None


def _why(error: Exception, access: KafkaAccess, address: str) -> str | None:
    says = None
    match error:
        case NoTokenError():
            says = str(error.args[0])
        case SaslAuthenticationFailed() if access.mechanism == "OAUTHBEARER":
            says = (
                f"Kafka at {address} does not take the token of {access.user}"
                f" ({' '.join(map(str, error.args))[:200]}): check that its brokers trust"
                f" {access.token_url}, and the scope in HIFI_KAFKA_TOKEN_SCOPE."
            )
        case SaslAuthenticationFailed():
            says = _bad_login(address, access)
        case UnsupportedSaslMechanismError():
            says = (
                f"Kafka at {address} does not accept {access.mechanism}:"
                " set HIFI_KAFKA_MECHANISM to a mechanism that it accepts."
            )
        case ssl.SSLCertVerificationError():
            says = _bad_certificate(address, error.verify_message)
        case ssl.SSLError() if "ALERT" in (error.reason or ""):
            says = (
                f"Kafka at {address} does not accept our certificate"
                f" ({(error.reason or '').lower().replace('_', ' ')}):"
                " set HIFI_KAFKA_CERT_FILE to a certificate that it accepts."
            )
        case ssl.SSLError() | ConnectionResetError() | KafkaConnectionError():
            says = (
                f"The listener at {address} closes connections with {access.protocol}:"
                " set HIFI_KAFKA_PROTOCOL to the listener's protocol, or use another address."
            )
        case _:
            # Nobody listens or answers there, which is not a refusal.
            pass
    return says


def _bad_login(where: str, access: KafkaAccess) -> str:
    if access.login == "AWS_MSK_IAM":
        return (
            f"Kafka at {where} does not let {access.caller} log in: its policy must allow"
            " kafka-cluster:Connect on this cluster, as in docs/kafka.md."
        )
    return (
        f"Kafka at {where} does not let {access.caller} log in ({access.mechanism}):"
        " check HIFI_KAFKA_USER, HIFI_KAFKA_PASSWORD and HIFI_KAFKA_MECHANISM."
    )


def _bad_certificate(where: str, why: str) -> str:
    return (
        f"The certificate of Kafka at {where} is not trusted ({why}):"
        " set HIFI_KAFKA_CA_FILE to the certificate of the authority that signed it."
    )


def _use_of(kind: str, named: str) -> str:
    return f"use the {kind} {named}" if named else f"use a {kind}"


def _no_right(where: str, what: str) -> str:
    return (
        f"Kafka at {where} does not let {access_to(where).caller} {what}:"
        " grant it the rights that docs/kafka.md lists for this service."
    )


def _names(arguments: tuple[object, ...]) -> list[str]:
    """Return the names in an error's arguments: one, or a set of them."""
    return [
        str(name)
        for given in arguments
        for name in (sorted(map(str, given)) if isinstance(given, set | list | tuple) else [given])
        if name
    ]
