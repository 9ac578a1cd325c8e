"""Lists observe's environment variables: HIFI_OBSERVE_*."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import SettingsConfigDict

from shared.runtime import defaults
from shared.runtime.channels.settings import ChannelSettings
from shared.runtime.kafka.leases.member import SESSION_S
from shared.runtime.kafka.settings import JAAS_VARIABLE, kafka_access
from shared.runtime.settings import ListenerSettings, Port, SparkServiceSettings
from shared.runtime.setup_error import SetupError
from shared.runtime.spark.cluster import SparkCluster, SparkClusterSettings
from shared.runtime.tokens.reading import ClaimNames

_KEY_BYTES = 32
# Nobody can guess this many random characters, even if all are hexadecimal digits.
_SECRET_LENGTH_MIN = 32


def _statement_key(text: str) -> str:
    try:
        is_key = not text or len(bytes.fromhex(text)) == _KEY_BYTES
    except ValueError:
        is_key = False
    if not is_key:
        raise SetupError(
            "HIFI_OBSERVE_STATEMENT_KEY, or the content of its file, is not an ed25519 key:"
            " 64 hexadecimal digits, as `openssl rand -hex 32` prints them."
        )
    return text


def _cookie_secret(text: str) -> str:
    if 0 < len(text) < _SECRET_LENGTH_MIN:
        raise SetupError(
            f"HIFI_OBSERVE_CONSOLE_COOKIE_SECRET has fewer than {_SECRET_LENGTH_MIN} characters."
            " `openssl rand -hex 32` prints a good one."
        )
    return text


def _address(text: str) -> str:
    """Check that nobody on the way to a trusted service can read or change its answers."""
    parts = urlsplit(text)
    is_here = parts.hostname in {"localhost", "127.0.0.1", "::1"}
    is_secure = parts.scheme == "https" or (parts.scheme == "http" and is_here)
    if text and not (is_secure and parts.hostname and not parts.query and not parts.fragment):
        raise ValueError("write it as https://name.example; http is only for this machine")
    return text


class ObserveSettings(SparkClusterSettings, SparkServiceSettings, ChannelSettings):
    """The settings of the sampler and the audit. Read once, in __main__."""

    model_config = SettingsConfigDict(env_prefix="HIFI_OBSERVE_", frozen=True)

    # Scratch space, and the key that signs statements if none is set.
    folder: Path = Path("data/observe")
    # The key that signs statements, or a file with it: the same for all observers of this Hifi.
    # Without either, observe generates a key and keeps it in the folder.
    statement_key: Annotated[str, AfterValidator(_statement_key)] = Field(default="", repr=False)
    statement_key_file: Path | None = None
    metrics_port: Port = defaults.OBSERVE_METRICS_PORT
    # Seconds after which an undelivered event makes its destination SLOW.
    slow_after_s: float = Field(default=defaults.SLOW_AFTER_S, gt=0)

    # Whether to run the Spark job that proves completeness, minute by minute.
    is_audit_on: bool = True
    # A run has fixed costs of 0.7 s of a core, which is 0.6 % of two cores at one run a minute
    # (docs/tuning.md).
    audit_interval_s: float = Field(default=60.0, gt=0)
    # Disk space for the index of ids and ordering keys: 60 million events at 16 bytes each.
    # 0: no index; searches read the log.
    index_bytes_max: int = Field(default=1_000_000_000, ge=0)
    # Seconds between the last event of a minute and its check: the gateway writes its ledger within
    # a second or two, and the clocks of machines differ by seconds.
    check_after_s: float = Field(default=120.0, ge=0)
    # Further seconds until an unchecked minute is overdue and raises an alert.
    overdue_after_s: float = Field(default=defaults.OVERDUE_AFTER_S, gt=0)
    heap_mb: int = Field(default=512, ge=384)
    # Seconds of silence after which another observer takes over the audit. The takeover itself
    # needs half of the minute that we promise. Kafka's own minimum is 6 s.
    lease_s: float = Field(default=SESSION_S, ge=6, le=45)

    @property
    def cluster(self) -> SparkCluster | None:
        """The cluster that runs the audit's tasks; None for this machine."""
        cluster, access = super().cluster, kafka_access()
        if cluster is None or not access.is_named:
            return cluster
        # Spark's own source reads from Kafka in Java, so Java needs the access data.
        return replace(cluster, told_java={JAAS_VARIABLE: access.jaas})

    @property
    def signing_key(self) -> str:
        """The key from the settings; empty if the key in the folder is used."""
        if self.statement_key_file is None:
            return self.statement_key
        try:
            return _statement_key(self.statement_key_file.read_text().strip())
        except OSError as error:
            raise SetupError(
                f"HIFI_OBSERVE_STATEMENT_KEY_FILE is {self.statement_key_file}, which cannot be"
                f" read ({error.strerror}). Name a file with the key."
            ) from error


class ConsoleSettings(ListenerSettings):
    """The settings of the console. Read once, in __main__."""

    model_config = SettingsConfigDict(env_prefix="HIFI_OBSERVE_CONSOLE_", frozen=True)

    port: Port = defaults.CONSOLE_PORT
    # The address of the gateway, through which the console changes things.
    gateway: str = f"http://{defaults.HOST}:{defaults.GATEWAY_PORT}"
    # Reports of the supervisor that keeps Hifi running, on services that keep dying.
    deaths_file: Path | None = None
    # The same as the retrier's; otherwise the console shows wrong due times.
    time_scale: float = Field(default=1.0, gt=0)
    # Whether a proxy in front speaks TLS; browsers then send the cookie only over TLS.
    https: bool = False
    # Seals session cookies: the same for all consoles behind one name. Without it each process
    # generates its own, and people must sign in again after its restart.
    cookie_secret: Annotated[str, AfterValidator(_cookie_secret)] = Field(default="", repr=False)
    # A further way to sign in: the issuer of an OpenID provider, and its client id for the console.
    oidc_issuer: Annotated[str, AfterValidator(_address)] = ""
    oidc_client_id: str = ""
    # Without a file, the client is public, and only PKCE protects it.
    oidc_client_secret_file: Path | None = None
    # The provider's name in "Sign in with ...".
    oidc_name: str = "OpenID"
    # Scopes to request besides openid, so that the claims below are in the token.
    oidc_scope: str = "profile"
    oidc_tenant_claim: str = "tenant"
    oidc_scope_claim: str = "scope"
    oidc_read_value: str = "read"
    oidc_admin_value: str = "admin"
    # The console's address for browsers: the provider redirects to it, and messages to channels
    # link to it. It is never taken from a request.
    url: Annotated[str, AfterValidator(_address)] = ""

    @model_validator(mode="after")
    def _has_all_of_a_provider(self) -> Self:
        if not self.oidc_issuer:
            return self
        named = {"OIDC_CLIENT_ID": self.oidc_client_id, "URL": self.url}
        for name in (name for name, value in named.items() if not value):
            raise SetupError(
                f"HIFI_OBSERVE_CONSOLE_OIDC_ISSUER is set, but HIFI_OBSERVE_CONSOLE_{name} is not."
                " docs/console.md lists the settings for a provider."
            )
        if not self.asks_for_keys:
            raise SetupError(
                "HIFI_OBSERVE_CONSOLE_OIDC_ISSUER is set, but this console runs without sign-in."
                " Set HIFI_OBSERVE_CONSOLE_AUTH=keys."
            )
        return self

    @property
    def claim_names(self) -> ClaimNames:
        """The claims of a token with its tenant and its scopes, and the values of scopes."""
        return ClaimNames(
            self.oidc_tenant_claim, self.oidc_scope_claim, self.oidc_read_value,
            self.oidc_admin_value,
        )  # fmt: skip

    @property
    def oidc_client_secret(self) -> str:
        """The secret in the file; empty for a public client."""
        if self.oidc_client_secret_file is None:
            return ""
        try:
            return self.oidc_client_secret_file.read_text().strip()
        except OSError as error:
            raise SetupError(
                f"HIFI_OBSERVE_CONSOLE_OIDC_CLIENT_SECRET_FILE is {self.oidc_client_secret_file},"
                f" which cannot be read ({error.strerror}). Name a file with the secret."
            ) from error
