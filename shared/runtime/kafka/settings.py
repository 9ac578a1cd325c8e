"""Reads the access to Kafka from HIFI_KAFKA_*, for all clients of a process and for Spark's.

A process uses one Kafka as one user, so its clients get the access here, and no caller passes a
secret (ADR 0054). The access to a locked embedded Kafka is not in the environment of the process
that made it.
"""

import ssl
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.runtime.setup_error import SetupError, wrong_variable

if TYPE_CHECKING:
    from shared.runtime.java.jars import JarSet
    from shared.runtime.kafka.logins.tokens import LoginTokens, TokenService

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER", "AWS_MSK_IAM"]
# The environment variable with the secret for Spark's Java half: so it is in no plan and no log.
JAAS_VARIABLE = "HIFI_KAFKA_JAAS"
_HELP = "docs/kafka.md has an example"
_KAFKAS, _AMAZONS = "org.apache.kafka.common.security", "software.amazon.msk.auth.iam"
_LOGIN_MODULES = {
    "SCRAM-SHA-512": f"{_KAFKAS}.scram.ScramLoginModule",
    "SCRAM-SHA-256": f"{_KAFKAS}.scram.ScramLoginModule",
    "PLAIN": f"{_KAFKAS}.plain.PlainLoginModule",
    "OAUTHBEARER": f"{_KAFKAS}.oauthbearer.OAuthBearerLoginModule",
    "AWS_MSK_IAM": f"{_AMAZONS}.IAMLoginModule",
}
# Java's clients ask only token services that this property lists.
_JAVA_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


def _token_url(text: str) -> str:
    parts = urlsplit(text)
    is_here = parts.hostname in {"localhost", "127.0.0.1", "::1"}
    is_secure = parts.scheme == "https" or (parts.scheme == "http" and is_here)
    if text and not (is_secure and parts.hostname):
        raise ValueError("write it as https://name.example/token; http is only for this machine")
    return text


def _extensions(text: str) -> str:
    for pair in filter(None, text.split(",")):
        name, _, value = pair.partition("=")
        if not (name.strip().isalpha() and value.strip()):
            raise ValueError("write it as name=value,name=value, with letters in a name")
    return text


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
    mechanism: Mechanism = "SCRAM-SHA-512"
    # With OAUTHBEARER they are a client's id and secret at the token service.
    user: str = ""
    password: SecretStr = Field(default=SecretStr(""), repr=False)
    # With OAUTHBEARER: the token service, the scope to ask for, and what some brokers want to know
    # besides the token ("logicalCluster=lkc-1,identityPoolId=pool-2").
    token_url: Annotated[str, AfterValidator(_token_url)] = ""
    token_scope: str = ""
    token_extensions: Annotated[str, AfterValidator(_extensions)] = ""
    # With AWS_MSK_IAM: the region of brokers whose names have none.
    region: str = Field(default="", validation_alias="AWS_REGION")

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        for problem in self._problems():
            raise SetupError(problem)
        return self

    @property
    def is_named(self) -> bool:
        """Whether we log in, and not only by certificate."""
        return self.protocol.startswith("SASL_")

    @property
    def login(self) -> Mechanism | None:
        """The mechanism by which we log in, if we do."""
        return self.mechanism if self.is_named else None

    @property
    def is_encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def caller(self) -> str:
        """Our identity in Kafka, for people to read."""
        if self.login == "AWS_MSK_IAM":
            return "the AWS identity of this process"
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

    def for_client(self, bootstrap_servers: str) -> dict[str, Any]:
        """Return the access as aiokafka's options."""
        words: dict[str, Any] = {"security_protocol": self.protocol, "ssl_context": self.tls}
        if self.login in {"OAUTHBEARER", "AWS_MSK_IAM"}:
            words |= {
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauth_token_provider": self._token_source(bootstrap_servers),
            }
        elif self.is_named:
            words |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password.get_secret_value(),
            }
        return words

    def _token_source(self, bootstrap_servers: str) -> "LoginTokens":
        """Return the source of tokens that all connections share."""
        if self.login == "OAUTHBEARER":
            return self._token_service
        # The AWS SDK is loaded only by processes that use it.
        from shared.runtime.kafka.logins.msk import region_in, tokens_for  # noqa: PLC0415

        return tokens_for(region_in(bootstrap_servers) or self.region)

    @cached_property
    def _token_service(self) -> "TokenService":
        # aiokafka is loaded only by commands and services that use Kafka.
        from shared.runtime.kafka.logins.tokens import TokenService  # noqa: PLC0415

        return TokenService(
            self.token_url,
            client_id=self.user,
            secret=self.password.get_secret_value(),
            scope=self.token_scope,
            extensions=self._named_extensions,
        )

    @property
    def _named_extensions(self) -> dict[str, str]:
        pairs = (pair.partition("=") for pair in filter(None, self.token_extensions.split(",")))
        return {name.strip(): value.strip() for name, _, value in pairs}

    def for_another_process(self) -> tuple[dict[str, str], dict[str, Path]]:
        """Return the variables for the same access on another machine, and those with files."""
        words = {
            "PROTOCOL": self.protocol,
            "MECHANISM": self.mechanism,
            "USER": self.user,
            "PASSWORD": self.password.get_secret_value(),
            "TOKEN_URL": self.token_url,
            "TOKEN_SCOPE": self.token_scope,
            "TOKEN_EXTENSIONS": self.token_extensions,
        }
        files = {"CA_FILE": self.ca_file, "CERT_FILE": self.cert_file}
        # The other machine has an AWS identity of its own.
        region = {"AWS_REGION": self.region} if self.login == "AWS_MSK_IAM" and self.region else {}
        return (
            {f"HIFI_KAFKA_{name}": word for name, word in words.items() if word} | region,
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
        if self.login == "OAUTHBEARER":
            words |= {
                "sasl.oauthbearer.token.endpoint.url": self.token_url,
                "sasl.login.callback.handler.class": (
                    f"{_KAFKAS}.oauthbearer.OAuthBearerLoginCallbackHandler"
                ),
            }
        if self.login == "AWS_MSK_IAM":
            # The handler finds the same AWS identity and region as our own clients.
            handler = f"{_AMAZONS}.IAMClientCallbackHandler"
            words["sasl.client.callback.handler.class"] = handler
        return words

    @property
    def spark_jar_sets(self) -> "tuple[JarSet, ...]":
        """The sets of jars that Spark needs to reach this Kafka."""
        return ("spark", "msk") if self.login == "AWS_MSK_IAM" else ("spark",)

    @property
    def java_options(self) -> list[str]:
        """The options of a JVM whose Kafka clients use this access."""
        return [f"-D{_JAVA_ALLOWED_URLS}={self.token_url}"] if self.token_url else []

    @property
    def jaas(self) -> str:
        """User and secret in Java's format; only Java's environment may have them."""
        module = _LOGIN_MODULES[self.mechanism]
        if self.mechanism == "AWS_MSK_IAM":
            return f"{module} required;"
        secret = self.password.get_secret_value()
        words = {"username": self.user, "password": secret}
        if self.mechanism == "OAUTHBEARER":
            extensions = {f"extension_{key}": word for key, word in self._named_extensions.items()}
            scope = {"scope": self.token_scope} if self.token_scope else {}
            words = {"clientId": self.user, "clientSecret": secret, **scope, **extensions}
        named = " ".join(f"{name}={_quoted(word)}" for name, word in words.items())
        return f"{module} required {named};"

    def _problems(self) -> Iterator[str]:
        """Yield problems of the settings in combination."""
        has_secret = bool(self.user or self.password.get_secret_value())
        if self.mechanism == "AWS_MSK_IAM":
            yield from self._problems_with_iam()
        elif self.is_named and not (self.user and self.password.get_secret_value()):
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
        has_tokens = self.login == "OAUTHBEARER"
        if has_tokens and not self.token_url:
            yield (
                "HIFI_KAFKA_MECHANISM is OAUTHBEARER, which needs a token service:"
                f" set HIFI_KAFKA_TOKEN_URL ({_HELP})."
            )
        if not has_tokens and (self.token_url or self.token_scope or self.token_extensions):
            yield (
                "HIFI_KAFKA_TOKEN_URL, _SCOPE or _EXTENSIONS is set, but Hifi does not log in with"
                f" tokens: set HIFI_KAFKA_MECHANISM to OAUTHBEARER ({_HELP})."
            )
        if not self.is_encrypted and (self.ca_file or self.cert_file):
            yield (
                f"HIFI_KAFKA_CA_FILE or HIFI_KAFKA_CERT_FILE is set, but HIFI_KAFKA_PROTOCOL is"
                f" {self.protocol}, which is not encrypted: set it to SASL_SSL or SSL ({_HELP})."
            )
        # Report an unreadable file at the start, and not at the first connection.
        _ = self.tls

    def _problems_with_iam(self) -> Iterator[str]:
        if self.user or self.password.get_secret_value():
            yield (
                "HIFI_KAFKA_USER or HIFI_KAFKA_PASSWORD is set, but HIFI_KAFKA_MECHANISM is"
                f" AWS_MSK_IAM, which uses AWS credentials: remove them ({_HELP})."
            )
        if self.protocol != "SASL_SSL":
            # Everybody who reads a signed address on the network can log in with it.
            yield (
                f"HIFI_KAFKA_PROTOCOL is {self.protocol}, but HIFI_KAFKA_MECHANISM is AWS_MSK_IAM,"
                f" which needs TLS: set HIFI_KAFKA_PROTOCOL to SASL_SSL ({_HELP})."
            )
        if find_spec("botocore") is None:
            yield (
                "HIFI_KAFKA_MECHANISM is AWS_MSK_IAM, which needs the package botocore:"
                " install Hifi with the extra msk."
            )


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
