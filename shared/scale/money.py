"""Computes the monthly costs of a plan, line by line, at the prices of a dated file."""

from collections.abc import Iterator
from dataclasses import dataclass

from shared.scale.brokers import COPIES, DISK_USE, HOURS_A_MONTH, ZONES, BrokerChoice
from shared.scale.catalogue import GB, Prices

MONTH_S = HOURS_A_MONTH * 3_600
# Without regard to zones, machines send this share of their traffic to another zone.
CROSSING = (ZONES - 1) / ZONES


@dataclass(frozen=True, slots=True)
class Cost:
    what: str
    usd_month: float


@dataclass(frozen=True, slots=True)
class Flows:
    """Flows of a mean day in bytes/s, and the stored bytes of one copy."""

    into_kafka: float
    out_of_kafka: float
    to_destinations: float
    stored: float
    crossing: float


def crossing_bytes_s(into_kafka: float, out_of_kafka: float, *, reads_own_zone: bool) -> float:
    """Return the bytes/s to and from leaders in another zone; copies are not charged."""
    return CROSSING * (into_kafka + (0 if reads_own_zone else out_of_kafka))


def kafka_costs(choice: BrokerChoice, flows: Flows, prices: Prices) -> Iterator[Cost]:
    is_express = choice.size.kind == "express"
    yield Cost("brokers", choice.usd_month)
    # Express bills one copy of the data; Standard bills disks for all copies, with their free half.
    kept = flows.stored * (1 if is_express else COPIES / DISK_USE)
    yield Cost("Kafka storage", kept / GB * prices.storage_gb_month)
    if is_express:
        yield Cost("Kafka data in", flows.into_kafka * MONTH_S / GB * prices.express_in_gb)
    yield Cost("between zones", flows.crossing * MONTH_S / GB * prices.zone_crossing_gb)


def edge_costs(
    flows: Flows, prices: Prices, *, balancer_units: float, internet_share: float
) -> Iterator[Cost]:
    """Yield the costs of events' ways in and out."""
    yield Cost(
        "load balancer",
        HOURS_A_MONTH * (prices.balancer_h + balancer_units * prices.balancer_unit_h),
    )
    out_gb = flows.to_destinations * internet_share * MONTH_S / GB
    yield Cost("NAT", out_gb * prices.nat_gb)
    yield Cost("to the internet", out_gb * prices.internet_gb)


def balancer_units(
    bytes_s: float, *, new_connections_s: float = 0, connections: float = 0, rules_s: float = 0
) -> float:
    """Return AWS' LCUs, by 25 new connections/s, 3,000 open ones, 1 GB/h or 1,000 rules/s each."""
    return max(new_connections_s / 25, connections / 3_000, bytes_s * 3_600 / 1e9, rules_s / 1_000)
