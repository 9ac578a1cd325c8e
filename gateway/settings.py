"""Lists the settings of the gateway, each number with its source."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from shared.config.access import read_text
from shared.runtime import defaults
from shared.runtime.settings import (
    CopiesSettings,
    ListenerSettings,
    Port,
    SecretSettings,
    ServiceSettings,
)
from shared.runtime.setup_error import SetupError
from shared.runtime.tokens.reading import ClaimNames

Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]


def _key(text: str) -> str:
    shown = read_text(text)
    if text and (shown is None or shown.kind != "secret"):
        raise SetupError(
            "HIFI_GATEWAY_OPERATOR_KEY is no key: `hifi keys new-operator-key` prints one."
        )
    return text


def _observer(text: str) -> str:
    try:
        at = urlsplit(text)
        is_one = at.scheme == "http" and bool(at.hostname) and at.port != 0
    except ValueError:
        is_one = False
    if text and not is_one:
        raise SetupError(
            f"HIFI_GATEWAY_OBSERVE is {text!r}: it must be where an observer shows its metrics,"
            f" such as http://127.0.0.1:{defaults.OBSERVE_METRICS_PORT}."
        )
    return text


class Settings(ServiceSettings, ListenerSettings, SecretSettings, CopiesSettings):
    """Settings of one gateway process, each as HIFI_GATEWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="HIFI_GATEWAY_", frozen=True)

    port: Port = defaults.GATEWAY_PORT
    metrics_port: Port = defaults.GATEWAY_METRICS_PORT
    # An open listening socket, inherited from `hifi gateway`, which shares it among workers.
    listen_fd: Annotated[int, Field(ge=0)] | None = None

    # This machine's folder for copies of tables: the same one for all its processes.
    tables_folder: Path = Path("data/tables")

    # The ledger of acknowledged events, from which the audit proves that nothing is missing.
    is_ledger_on: bool = True

    # The address of an observer's metrics, such as http://127.0.0.1:8084: its index knows where
    # events lie. Without it the log is searched.
    observe: Annotated[str, AfterValidator(_observer)] = ""

    # A key that is good without being in the configuration: it makes the first keys.
    operator_key: Annotated[str, AfterValidator(_key)] = Field(default="", repr=False)
    # TLS, and with a client authority mTLS: a certificate's common name is the client's tenant.
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    tls_client_ca_file: Path | None = None
    # Tokens of one issuer are accepted for any of these audiences (comma-separated); its public
    # keys are a JSON Web Key Set.
    jwt_keys_file: Path | None = None
    jwt_issuer: str = ""
    jwt_audience: str = "hifi"
    # The claims, and their values, that give tenant and scopes; the same as the console's.
    jwt_tenant_claim: str = "tenant"
    jwt_scope_claim: str = "scope"
    jwt_read_value: str = "read"
    jwt_admin_value: str = "admin"
    # Somebody who shows a token may be gone tomorrow: a key that they make or rotate ends within
    # this many days. 0: it may last forever.
    keys_by_token_days: Annotated[int, Field(ge=0, le=3_650)] = 90

    # Multiplies delays and deadlines, as in delivery and retrier: it tells when waiting events are
    # due.
    time_scale: Annotated[float, Field(gt=0)] = 1.0

    # Whether destinations and channels may be set to private addresses; the services that send have
    # the same setting.
    allow_private: bool = False
    # Whether channels may use mail: only the observers know through which server.
    mail_host: str = Field(default="", validation_alias="HIFI_MAIL_HOST")

    # Kafka itself is up within 4 s (measured); a broker that restarts beside us takes longer.
    start_deadline_s: Seconds = 60.0
    # Under the 30 s after which HTTP clients commonly give up by themselves.
    ack_deadline_s: Seconds = 10.0
    # When Kafka has stored nothing for this long, an event that was not handed to it yet goes back
    # to the caller, who still owns it (an answer within 2 s when Kafka is dead, with its sweep).
    queue_deadline_s: Seconds = 1.5
    # Headers that take longer, or a body that stalls for this long, are a slow-loris or a lost peer
    # (nginx: 60 s, Heroku: 30 s); on a usable line no body of 5 MB takes longer than 30 s.
    head_deadline_s: Seconds = 10.0
    receive_deadline_s: Seconds = 10.0
    receive_total_s: Seconds = 30.0
    # Seconds that a connection stays open without a request.
    keep_alive_s: Count = defaults.KEEP_ALIVE_S
    # Connections of one process: each costs 13 KB and a descriptor. A new one beyond that closes
    # the longest idle connection of the address with the most (docs/fleet.md).
    connections_max: Count = 8_192
    # After SIGTERM, readiness says no for this long while requests are still taken: a load balancer
    # needs the time to notice. Nobody watches a gateway on a laptop, so the default is 0.
    drain_notice_s: Annotated[float, Field(ge=0)] = 0.0
    # Then every request gets its answer: the receive and the ack deadline, and a little.
    drain_s: Count = 45

    # Headers of peers: nginx takes 4 of 8 KiB, Node 16 KiB, most proxies no more than 32.
    head_bytes_max: Count = 32_768
    # Limits of peers: PutRecords 5 MB and 500 records, PostHog 20 MB, Cloudflare Pipelines 5 MB.
    body_bytes_max: Count = 5_000_000
    decompressed_bytes_max: Count = 20_000_000
    # Events compress 5 to 20 times; a ratio beyond 100 is a bomb.
    ratio_max: Count = 100
    # Browsers let a page send this much while it closes.
    beacon_bytes_max: Count = 65_536
    events_max: Annotated[int, Field(gt=0, le=50_000)] = 5_000
    # With its key and our headers an event stays under the 1,048,588 bytes of message.max.bytes.
    event_bytes_max: Annotated[int, Field(gt=0, le=1_040_000)] = 1_000_000
    # Deeper than people nest by hand; parsers of receivers give up between 100 and 1,000 levels.
    json_depth_max: Annotated[int, Field(gt=0, le=500)] = 100
    # Six requests of full size. A byte in flight is held about three times (body, event, batch).
    in_flight_bytes_max: Count = 32_000_000
    # With keys, one tenant alone leaves a quarter for the others.
    tenant_in_flight_share: Annotated[float, Field(gt=0, le=1)] = 0.75
    # Default bounds on one tenant's part of shared resources. Kafka is well with some 4,000
    # partitions a broker: with three copies on three brokers one tenant takes half of that.
    # Every process holds all destinations and keys, of a kilobyte or so each.
    tenant_streams_max: Count = 200
    tenant_partitions_max: Count = 2_000
    tenant_destinations_max: Count = 1_000
    # Each is a plan that Spark makes again for every job it is in.
    tenant_pipelines_max: Count = 100
    # Each is a topic, and a file on each machine that answers for it or joins with it.
    tenant_tables_max: Count = 100
    # Bytes that the copies of all its tables may take on the disk of such a machine.
    tenant_table_bytes_max: Count = 4_294_967_296
    # The process that sends notifications looks at each one every few seconds.
    tenant_channels_max: Count = 20
    tenant_keys_max: Count = 1_000
    # Fifty thousand keys with an answer of the usual size, of all gateways together.
    idempotency_bytes_max: Count = 32_000_000
    # Big enough that a batch's fixed costs vanish; the broker's default limit is 1,048,588.
    batch_bytes_max: Annotated[int, Field(gt=0, le=1_048_588)] = 524_288

    @property
    def jwt_audiences(self) -> list[str]:
        """The names by which tokens may address us."""
        return [name.strip() for name in self.jwt_audience.split(",") if name.strip()]

    @property
    def claim_names(self) -> ClaimNames:
        """The claims of a token that identify the caller."""
        return ClaimNames(
            self.jwt_tenant_claim, self.jwt_scope_claim, self.jwt_read_value, self.jwt_admin_value
        )
