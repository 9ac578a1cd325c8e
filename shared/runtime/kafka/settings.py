"""Lists the access to Kafka: HIFI_KAFKA_*, the same for all clients of a process, and Spark's.

A process uses one Kafka, as one user: so its clients ask here, and no caller passes a secret
(ADR 0054). The embedded Kafka's own lock is not in the environment of the process that made it.
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
# Where Spark's Java half finds the secret: in its environment, and so in no plan and no log.
JAAS_VARIABLE = "HIFI_KAFKA_JAAS"
_HELP = "docs/kafka.md has an example"


class _ShortGoodbye(ssl.SSLObject):
    """Closes a connection without waiting until the broker says goodbye too.

    asyncio waits half a minute for one that hangs, and a process that ends leaves it open.
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
    # The signer of the brokers' certificates; if None, an authority that the machine trusts.
    ca_file: Path | None = None
    # Our own certificate with its chain and its key, for brokers that ask for one: a single PEM
    # file with the key as PKCS#8, which is what Java reads.
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
        """Whether we say who we are by a user's name."""
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
                # A key with a password would be asked for on the terminal.
                context.load_cert_chain(self.cert_file, password="")
            except OSError as error:
                raise SetupError(
                    f"HIFI_KAFKA_CERT_FILE is {self.cert_file}, which holds no certificate with its"
                    f" key in PEM that can be read ({error.strerror or error}): {_HELP}."
                ) from error
        return context

    def for_client(self) -> dict[str, Any]:
        """In aiokafka's words."""
        words: dict[str, Any] = {"security_protocol": self.protocol, "ssl_context": self.tls}
        if self.is_named:
            words |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password.get_secret_value(),
            }
        return words

    def for_another_process(self) -> tuple[dict[str, str], dict[str, Path]]:
        """The variables that say the same on another machine, and those that name files there."""
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
        """In the words of Java's clients. The secret is not among them: `jaas` has it."""
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
        """User and secret as Java wants them: for its environment only, as nobody may see them."""
        return (
            "org.apache.kafka.common.security.scram.ScramLoginModule required"
            f" username={_quoted(self.user)} password={_quoted(self.password.get_secret_value())};"
        )

    def _problems(self) -> Iterator[str]:
        """The problems of the settings together, found when they are read."""
        has_secret = bool(self.user or self.password.get_secret_value())
        if self.is_named and not (self.user and self.password.get_secret_value()):
            yield (
                f"HIFI_KAFKA_PROTOCOL is {self.protocol}, which needs a user:"
                f" set HIFI_KAFKA_USER and HIFI_KAFKA_PASSWORD ({_HELP})."
            )
        if has_secret and not self.is_named:
            # People who set a user believe that Kafka asks for it.
            yield (
                f"HIFI_KAFKA_USER or HIFI_KAFKA_PASSWORD is set, and HIFI_KAFKA_PROTOCOL is"
                f" {self.protocol}, which knows no user: set it to SASL_SSL ({_HELP})."
            )
        if not self.is_encrypted and (self.ca_file or self.cert_file):
            yield (
                f"HIFI_KAFKA_CA_FILE or HIFI_KAFKA_CERT_FILE is set, and HIFI_KAFKA_PROTOCOL is"
                f" {self.protocol}, which is not encrypted: set it to SASL_SSL or SSL ({_HELP})."
            )
        # Report an unreadable file at the start, and not by the first connection.
        _ = self.tls


@cache
def kafka_access() -> KafkaAccess:
    """The access to Kafka that the environment of this process describes."""
    try:
        return KafkaAccess()
    except ValidationError as error:
        raise SetupError(wrong_variable(error, prefix="HIFI_KAFKA_")) from error


def _tls(variable: str, file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise SetupError(
            f"{variable} is {file}, which holds no certificate in PEM that can be read"
            f" ({error.strerror or error}): {_HELP}."
        ) from error


def _quoted(text: str) -> str:
    """As a value in Java's login configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
