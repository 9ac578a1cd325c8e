"""Lists what can be set for observe from outside: HIFI_OBSERVE_* and nothing else."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.runtime import defaults
from shared.runtime.kafka.leases.member import SESSION_S
from shared.runtime.settings import ListenerSettings, Port, SparkServiceSettings


class ObserveSettings(SparkServiceSettings):
    """What the sampler and the audit are told. Read once, in __main__."""

    model_config = SettingsConfigDict(env_prefix="HIFI_OBSERVE_", frozen=True)

    # The audit's memory and the key that signs its statements.
    folder: Path = Path("data/observe")
    metrics_port: Port = defaults.OBSERVE_METRICS_PORT
    # An event that is not delivered after so long makes its destination SLOW: half a minute is
    # past every local retry and before the first tier's second round.
    slow_after_s: float = Field(default=30.0, gt=0)

    # The Spark job that proves completeness, minute by minute.
    is_audit_on: bool = True
    # A run has fixed costs of 0.7 s of a core: once a minute they are 0.6 % of two cores
    # (docs/tuning.md).
    audit_interval_s: float = Field(default=60.0, gt=0)
    # How long after a minute's last event it is judged: the gateway's ledger is written within a
    # second or two, and clocks of machines differ by seconds.
    settle_s: float = Field(default=120.0, ge=0)
    # What is not settled so long after that raises an alarm: longer than a lane's restart.
    blind_after_s: float = Field(default=600.0, gt=0)
    heap_mb: int = Field(default=512, ge=384)
    # Who runs the audit and is silent for so long has it taken over by another observer: half of
    # the minute within which that is promised. Kafka's own least is 6 s.
    lease_s: float = Field(default=SESSION_S, ge=6, le=45)


class ConsoleSettings(ListenerSettings):
    """What the console is told. Read once, in __main__."""

    model_config = SettingsConfigDict(env_prefix="HIFI_OBSERVE_CONSOLE_", frozen=True)

    port: Port = defaults.CONSOLE_PORT
    # Where the gateway answers, through which the console changes things.
    gateway: str = f"http://{defaults.HOST}:{defaults.GATEWAY_PORT}"
    # As the retrier has it, or times at which events are due would be shown wrong.
    time_scale: float = Field(default=1.0, gt=0)
    # A proxy in front speaks TLS: the cookie is then sent over TLS only.
    https: bool = False
