"""Decides what the gateway can be told from outside: the only file here to read the environment.

Each number says where it comes from.
"""

from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]
Port = Annotated[int, Field(ge=0, le=65_535)]


class Settings(BaseSettings):
    """Settings of one gateway process, each as HIFI_GATEWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="HIFI_GATEWAY_", frozen=True)

    # Loopback until somebody decides otherwise: an ingest API is not opened by accident.
    host: str = "127.0.0.1"
    # 0 takes any free port.
    port: Port = 8080
    metrics_port: Port = 8081
    bootstrap_servers: str = "127.0.0.1:9092"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    # Kafka itself is up in 4 s (measured); a broker that restarts beside us takes longer.
    start_deadline_s: Seconds = 60.0
    # Under the 30 s after which HTTP clients commonly give up by themselves.
    ack_deadline_s: Seconds = 10.0
    # When Kafka has stored nothing for so long, an event that was not handed to it yet goes back to
    # the caller, who still owns it (issue 4: an answer within 2 s when Kafka is dead).
    queue_deadline_s: Seconds = 2.0
    # A body that stalls for so long is a slow-loris or a lost peer (nginx: 60 s, Heroku: 30 s).
    receive_deadline_s: Seconds = 10.0
    # After SIGTERM, readiness says no while requests are still taken: as long as a load balancer
    # needs to notice. Nobody watches a gateway on a laptop, so nothing by default.
    drain_notice_s: Annotated[float, Field(ge=0)] = 0.0
    # Then every request gets its answer: the receive and the ack deadline, and a little.
    drain_s: Count = 25

    # What peers take: PutRecords 5 MB and 500 records, PostHog 20 MB, Cloudflare Pipelines 5 MB.
    body_bytes_max: Count = 5_000_000
    events_max: Count = 5_000
    # With its key and our headers an event stays under the 1,048,588 bytes of message.max.bytes.
    event_bytes_max: Annotated[int, Field(gt=0, le=1_040_000)] = 1_000_000
    # Six requests of full size. A byte in flight is held about three times (body, event, batch).
    in_flight_bytes_max: Count = 32_000_000
    # Big enough that a batch's fixed costs vanish; the broker's default limit is 1,048,588.
    batch_bytes_max: Annotated[int, Field(gt=0, le=1_048_588)] = 524_288
