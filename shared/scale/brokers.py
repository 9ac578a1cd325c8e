"""Chooses Kafka's brokers for what clients write and read, and says what binds them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared.scale.catalogue import GB, BrokerKind, BrokerSize, Catalogue
from shared.scale.scale_error import ImpossibleError, ScaleError

ZONES = 3
COPIES = 3
# Up to here brokers are used as planned, as AWS' msk_sizing.py does. A Standard broker does more
# than it says for its clients: it copies, and moves partitions.
USE: Mapping[BrokerKind, float] = {"express": 0.75, "standard": 0.5}
# A full disk stops a broker: half of it stays free.
DISK_USE = 0.5
# Prices go by size, and many small brokers cost about as much as few large ones: up to a seventh
# more is paid for having fewer to upgrade, to reassign and to lose.
NEAR_LEAST = 1.15
HOURS_A_MONTH = 730


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """The traffic that a cluster has to carry, and the data that it has to keep."""

    in_mb_s: float
    out_mb_s: float
    # Kafka partitions, each counted once.
    partitions: int
    stored_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class BrokerChoice:
    size: BrokerSize
    count: int
    # The part of the planned capacity that the load takes, by resource; the largest binds.
    taken: Mapping[str, float]
    usd_month: float

    @property
    def binds(self) -> str:
        return max(self.taken, key=lambda resource: self.taken[resource])


def brokers_of(
    size: BrokerSize,
    load: BrokerLoad,
    *,
    disk_gb_max: int,
    use: float | None = None,
    survives_zone: bool = True,
) -> BrokerChoice:
    """How many of one size: a multiple of the zones, the two that are left being enough."""
    use = USE[size.kind] if use is None else use
    # A Standard broker's work for its clients is counted with a zone down already.
    live_share = (ZONES - 1) / ZONES if survives_zone and size.kind == "express" else 1.0
    traffic = size.carries(load.in_mb_s, load.out_mb_s)
    needs = {resource: brokers / use / live_share for resource, brokers in traffic.items()}
    needs["partitions"] = load.partitions * COPIES / size.partitions
    if size.kind == "standard":
        stored_gb = load.stored_bytes * COPIES / GB
        needs["disk"] = stored_gb / DISK_USE / disk_gb_max
    # Rounding errors of a multiple that fits exactly are no broker.
    count = max(ZONES * math.ceil(round(need / ZONES, 9)) for need in needs.values())
    count = max(count, ZONES)
    return BrokerChoice(
        size,
        count,
        {resource: need / count for resource, need in needs.items()},
        count * size.usd_h * HOURS_A_MONTH,
    )


def choose_brokers(
    catalogue: Catalogue,
    load: BrokerLoad,
    kind: BrokerKind,
    *,
    name: str | None = None,
    survives_zone: bool = True,
) -> BrokerChoice:
    """The fewest that cost little more than the cheapest; of one size, if it is named."""
    sizes = [size for size in catalogue.broker_sizes if size.kind == kind]
    if name is not None:
        sizes = [size for size in sizes if size.name == name]
    if not sizes:
        known = ", ".join(size.name for size in catalogue.broker_sizes if size.kind == kind)
        raise ScaleError(f"{name!r} is no {kind} broker of the price file ({known}).")
    choices = [
        brokers_of(size, load, disk_gb_max=catalogue.disk_gb_max, survives_zone=survives_zone)
        for size in sizes
    ]
    fitting = [choice for choice in choices if choice.count <= catalogue.brokers_max]
    if not fitting:
        raise _too_many(choices, catalogue.brokers_max)
    least = min(choice.usd_month for choice in fitting)
    near = [choice for choice in fitting if choice.usd_month <= NEAR_LEAST * least]
    return min(near, key=lambda choice: (choice.count, choice.usd_month))


def _too_many(choices: Sequence[BrokerChoice], brokers_max: int) -> ImpossibleError:
    least = min(choices, key=lambda choice: choice.count)
    binds = least.binds
    mend = {
        "disk": "keep the streams for less long, or take Express brokers, which have no disks",
        "partitions": "make fewer and larger streams",
    }.get(binds, "split it over several clusters, or lower the fan-out")
    return ImpossibleError(
        binds,
        f"It would take {least.count} brokers of {least.size.name}, and a cluster has"
        f" {brokers_max} at most. The limit is {binds}: {mend}.",
    )
