"""Reads the access to Kafka from HIFI_KAFKA_*, for all clients of a process and for Spark's.

A process uses one Kafka as one user, so its clients get the access here, and no caller passes a
secret (ADR 0054). The access to a locked embedded Kafka is not in the environment of the process
that made it.
"""

import ssl
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.runtime.setup_error import SetupError, wrong_variable

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
# The environment variable with the secret for Spark's Java half: so it is in no plan and no log.
JAAS_VARIABLE = "HIFI_KAFKA_JAAS"
_HELP = "docs/kafka.md has an example"


class _ShortGoodbye(ssl.SSLObject):
    """Closes a TLS connection without waiting for the broker to close its side.

    asyncio waits 30 s for a hanging broker, and a process that ends leaves the connection open.
    """

    def unwrap(self) -> None:
        with suppress(ssl.SSLWantReadError):
            super().unwrap()


class KafkaAccess(BaseSettings):
    """The access to a Kafka."""

    model_config = SettingsConfigDict(
        env_prefix="HIFI_KAFKA_", frozen=True, hide_input_in_errors=True
    )

    protocol: Protocol = "PLAINTEXT"
    # The authority that signed the brokers' certificates; None means those the machine trusts.
    ca_file: Path | None = None
    # Our own certificate with its chain and its key, for brokers that ask for one: a single PEM
    # file, with the key as PKCS#8 because Java reads that.
    cert_file: Path | None = None
    mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256"] = "SCRAM-SHA-512"
    user: str = ""
    password: SecretStr = Field(default=SecretStr(""), repr=False)

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        for problem in self._problems():
            raise SetupError(problem)
        return self

    @property
    def is_named(self) -> bool:
        """Whether we log in with a user's name."""
        return self.protocol.startswith("SASL_")

    @property
    def is_encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def caller(self) -> str:
        """Our identity in Kafka, for people to read."""
        if self.is_named:
            return f"the user {self.user}"
        return "the holder of HIFI_KAFKA_CERT_FILE" if self.cert_file else "callers without a name"

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        if not self.is_encrypted:
            return None
        context = _tls("HIFI_KAFKA_CA_FILE", self.ca_file)
        context.sslobject_class = _ShortGoodbye
        if self.cert_file is not None:
            try:
                # Otherwise OpenSSL would ask for a key's password on the terminal.
                context.load_cert_chain(self.cert_file, password="")
            except OSError as error:
                raise SetupError(
                    f"HIFI_KAFKA_CERT_FILE is {self.cert_file}, which has no readable certificate"
                    f" with its key in PEM ({error.strerror or error}): {_HELP}."
                ) from error
        return context

    def for_client(self) -> dict[str, Any]:
        """Return the access as aiokafka's options."""
        words: dict[str, Any] = {"security_protocol": self.protocol, "ssl_context": self.tls}
        if self.is_named:
            words |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password.get_secret_value(),
            }
        return words

    def for_another_process(self) -> tuple[dict[str, str], dict[str, Path]]:
        """Return the variables for the same access on another machine, and those with files."""
        words = {
            "PROTOCOL": self.protocol,
            "MECHANISM": self.mechanism,
            "USER": self.user,
            "PASSWORD": self.password.get_secret_value(),
        }
        files = {"CA_FILE": self.ca_file, "CERT_FILE": self.cert_file}
        return (
            {f"HIFI_KAFKA_{name}": word for name, word in words.items() if word},
            {f"HIFI_KAFKA_{name}": file for name, file in files.items() if file is not None},
        )

    def for_java(self) -> dict[str, str]:
        """Return the access as options of Java's clients, without the secret: `jaas` has it."""
        words: dict[str, str] = {"security.protocol": self.protocol}
        if self.is_encrypted and self.ca_file is not None:
            words |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.ca_file.absolute()),
            }
        if self.is_encrypted and self.cert_file is not None:
            words |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.cert_file.absolute()),
            }
        if self.is_named:
            words |= {
                "sasl.mechanism": self.mechanism,
                "config.providers": "env",
                "config.providers.env.class": (
                    "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
                ),
                "sasl.jaas.config": f"${{env:{JAAS_VARIABLE}}}",
            }
        return words

    @property
    def jaas(self) -> str:
        """User and secret in Java's format; only Java's environment may have them."""
        return (
            "org.apache.kafka.common.security.scram.ScramLoginModule required"
            f" username={_quoted(self.user)} password={_quoted(self.password.get_secret_value())};"
        )

    def _problems(self) -> Iterator[str]:
        """Yield problems of the settings in combination."""
        has_secret = bool(self.user or self.password.get_secret_value())
        if self.is_named and not (self.user and self.password.get_secret_value()):
            yield (
                f"HIFI_KAFKA_PROTOCOL is {self.protocol}, which needs a user:"
                f" set HIFI_KAFKA_USER and HIFI_KAFKA_PASSWORD ({_HELP})."
            )
        if has_secret and not self.is_named:
            # People who set a user expect that Kafka asks for it.
            yield (
                f"HIFI_KAFKA_USER or HIFI_KAFKA_PASSWORD is set, but HIFI_KAFKA_PROTOCOL is"
                f" {self.protocol}, which has no users: set it to SASL_SSL ({_HELP})."
            )
        if not self.is_encrypted and (self.ca_file or self.cert_file):
            yield (
                f"HIFI_KAFKA_CA_FILE or HIFI_KAFKA_CERT_FILE is set, but HIFI_KAFKA_PROTOCOL is"
                f" {self.protocol}, which is not encrypted: set it to SASL_SSL or SSL ({_HELP})."
            )
        # Report an unreadable file at the start, and not at the first connection.
        _ = self.tls


@cache
def kafka_access() -> KafkaAccess:
    """Return the access to Kafka from this process's environment."""
    try:
        return KafkaAccess()
    except ValidationError as error:
        raise SetupError(wrong_variable(error, prefix="HIFI_KAFKA_")) from error


def _tls(variable: str, file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise SetupError(
            f"{variable} is {file}, which has no readable certificate in PEM"
            f" ({error.strerror or error}): {_HELP}."
        ) from error


def _quoted(text: str) -> str:
    """Quote a value for Java's login configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
