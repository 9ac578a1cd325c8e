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
            "HIFI_GATEWAY_OPERATOR_KEY is not a key: `hifi keys new-operator-key` prints one."
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
            f"HIFI_GATEWAY_OBSERVE is {text!r}: it must be the address of an observer's metrics,"
            f" such as http://127.0.0.1:{defaults.OBSERVE_METRICS_PORT}."
        )
    return text


class Settings(ServiceSettings, ListenerSettings, SecretSettings, CopiesSettings):
    """Settings of one gateway process, each as HIFI_GATEWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="HIFI_GATEWAY_", frozen=True)

    port: Port = defaults.GATEWAY_PORT
    metrics_port: Port = defaults.GATEWAY_METRICS_PORT
    # A listening socket, inherited from `hifi gateway`, which shares it among workers.
    listen_fd: Annotated[int, Field(ge=0)] | None = None

    # This machine's folder for copies of tables, shared by all its processes.
    tables_folder: Path = Path("data/tables")

    # The ledger of acknowledged events, from which the audit proves that nothing is missing.
    is_ledger_on: bool = True

    # The address of an observer's metrics, such as http://127.0.0.1:8084: its index knows events'
    # places. Without an observer, searches read the log.
    observe: Annotated[str, AfterValidator(_observer)] = ""

    # A key that is valid without being in the configuration: it makes the first keys.
    operator_key: Annotated[str, AfterValidator(_key)] = Field(default="", repr=False)
    # TLS; with a client authority also mTLS: a certificate's common name is the client's tenant.
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    tls_client_ca_file: Path | None = None
    # Tokens of one issuer are accepted for any of these audiences (comma-separated); its public
    # keys are a JSON Web Key Set.
    jwt_keys_file: Path | None = None
    jwt_issuer: str = ""
    jwt_audience: str = "hifi"
    # The claims that name tenant and scopes, and the scopes' values; the same as the console's.
    jwt_tenant_claim: str = "tenant"
    jwt_scope_claim: str = "scope"
    jwt_read_value: str = "read"
    jwt_admin_value: str = "admin"
    # A token's holder may leave the company, so a key that they make or rotate ends within this
    # many days. 0: no limit.
    keys_by_token_days: Annotated[int, Field(ge=0, le=3_650)] = 90

    # Multiplies delays and deadlines, as in delivery and retrier, to compute when waiting events
    # are due.
    time_scale: Annotated[float, Field(gt=0)] = 1.0

    # Whether destinations and channels may have private addresses; the services that send have the
    # same setting.
    allow_private: bool = False
    # Whether channels may use mail: set if the observers, which send it, have a mail server.
    mail_host: str = Field(default="", validation_alias="HIFI_MAIL_HOST")

    # Kafka itself starts within 4 s (measured); a broker that restarts at the same time is slower.
    start_deadline_s: Seconds = 60.0
    # Below the 30 s after which HTTP clients commonly give up.
    ack_deadline_s: Seconds = 10.0
    # When Kafka has stored nothing for this long, events that have not been sent to it yet are
    # reported as not stored, so callers keep them. With the sweep, callers wait at most 2 s.
    queue_deadline_s: Seconds = 1.5
    # Headers that take longer, or a body that stalls for this long, mean a slow-loris attack or a
    # lost peer (nginx: 60 s, Heroku: 30 s). On a usable line a body of 5 MB takes at most 30 s.
    head_deadline_s: Seconds = 10.0
    receive_deadline_s: Seconds = 10.0
    receive_total_s: Seconds = 30.0
    # Seconds that a connection stays open without a request.
    keep_alive_s: Count = defaults.KEEP_ALIVE_S
    # Connections of one process; each costs 13 KB and a descriptor. Beyond this number, the client
    # address with the most connections loses its longest idle one (docs/fleet.md).
    connections_max: Count = 8_192
    # After SIGTERM the gateway is not ready, but takes requests for this long, which gives a load
    # balancer time to notice. On a laptop there is none, so the default is 0.
    drain_notice_s: Annotated[float, Field(ge=0)] = 0.0
    # The time for open requests to get their answers after that notice: the receive and ack
    # deadlines, and some reserve.
    drain_s: Count = 45

    # Other servers' limits: nginx takes 4 times 8 KiB, Node 16 KiB, most proxies at most 32 KiB.
    head_bytes_max: Count = 32_768
    # Other services' limits: PutRecords 5 MB and 500 records, PostHog 20 MB, Cloudflare Pipelines
    # 5 MB.
    body_bytes_max: Count = 5_000_000
    decompressed_bytes_max: Count = 20_000_000
    # Events compress 5 to 20 times; a ratio beyond 100 is a bomb.
    ratio_max: Count = 100
    # Browsers let a closing page send at most this much.
    beacon_bytes_max: Count = 65_536
    events_max: Annotated[int, Field(gt=0, le=50_000)] = 5_000
    # With its key and our headers, an event stays below message.max.bytes (1,048,588).
    event_bytes_max: Annotated[int, Field(gt=0, le=1_040_000)] = 1_000_000
    # More levels than people write by hand; receivers' parsers fail at 100 to 1,000 levels.
    json_depth_max: Annotated[int, Field(gt=0, le=500)] = 100
    # Six requests of the greatest size. Each byte in flight takes about three bytes of memory
    # (body, event, batch).
    in_flight_bytes_max: Count = 32_000_000
    # With keys, one tenant can take at most this part, so a quarter is left for others.
    tenant_in_flight_share: Annotated[float, Field(gt=0, le=1)] = 0.75
    # Default bounds on one tenant's part of shared resources. A Kafka broker copes with some 4,000
    # partitions; with three copies on three brokers one tenant may take half of that.
    # Every process keeps all destinations and keys in memory, about a kilobyte each.
    tenant_streams_max: Count = 200
    tenant_partitions_max: Count = 2_000
    tenant_destinations_max: Count = 1_000
    # Spark plans a pipeline again for every job that runs it.
    tenant_pipelines_max: Count = 100
    # Each table is a topic, and a file on every machine that serves it or joins with it.
    tenant_tables_max: Count = 100
    # Bytes that the copies of all of a tenant's tables may take on such a machine's disk.
    tenant_table_bytes_max: Count = 4_294_967_296
    # The process that sends notifications checks each channel every few seconds.
    tenant_channels_max: Count = 20
    tenant_keys_max: Count = 1_000
    # Enough for 50,000 keys with answers of the usual size, over all gateways.
    idempotency_bytes_max: Count = 32_000_000
    # Large enough that a batch's fixed costs do not matter; brokers' default limit is 1,048,588.
    batch_bytes_max: Annotated[int, Field(gt=0, le=1_048_588)] = 524_288

    @property
    def jwt_audiences(self) -> list[str]:
        """The audiences that tokens may be issued for."""
        return [name.strip() for name in self.jwt_audience.split(",") if name.strip()]

    @property
    def claim_names(self) -> ClaimNames:
        """The claims of a token that identify the caller."""
        return ClaimNames(
            self.jwt_tenant_claim, self.jwt_scope_claim, self.jwt_read_value, self.jwt_admin_value
        )
