"""Chooses Kafka brokers for the clients' traffic, and names the resource that limits them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared.scale.catalogue import GB, BrokerKind, BrokerSize, Catalogue
from shared.scale.scale_error import ImpossibleError, ScaleError

ZONES = 3
COPIES = 3
# The planned use of brokers, as in AWS' msk_sizing.py. A Standard broker has work besides its
# clients' traffic: it copies, and moves partitions.
USE: Mapping[BrokerKind, float] = {"express": 0.75, "standard": 0.5}
# A full disk stops a broker: half of it stays free.
DISK_USE = 0.5
# Prices are proportional to size: many small brokers cost about as much as a few large ones. It is
# worth 15 % more to have fewer brokers to upgrade, to reassign and to lose.
NEAR_LEAST = 1.15
HOURS_A_MONTH = 730


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """The traffic that a cluster must carry, and the data that it must keep."""

    in_mb_s: float
    out_mb_s: float
    # Kafka partitions, each counted once.
    partitions: int
    stored_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class BrokerChoice:
    size: BrokerSize
    count: int
    # The load's share of the planned capacity, by resource; the largest is the limit.
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
    """Return the number of brokers of one size: a multiple of the zones, of which two suffice."""
    use = USE[size.kind] if use is None else use
    # The figures of a Standard broker already assume that a zone is down.
    live_share = (ZONES - 1) / ZONES if survives_zone and size.kind == "express" else 1.0
    traffic = size.carries(load.in_mb_s, load.out_mb_s)
    needs = {resource: brokers / use / live_share for resource, brokers in traffic.items()}
    needs["partitions"] = load.partitions * COPIES / size.partitions
    if size.kind == "standard":
        stored_gb = load.stored_bytes * COPIES / GB
        needs["disk"] = stored_gb / DISK_USE / disk_gb_max
    # A rounding error in an exact multiple must not add brokers.
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
    """Choose the fewest brokers that cost little more than the cheapest; `name` fixes the size."""
    sizes = [size for size in catalogue.broker_sizes if size.kind == kind]
    if name is not None:
        sizes = [size for size in sizes if size.name == name]
    if not sizes:
        known = ", ".join(size.name for size in catalogue.broker_sizes if size.kind == kind)
        raise ScaleError(f"{name!r} is not a {kind} broker in the price file ({known}).")
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
        "disk": "shorten the streams' retention, or take Express brokers, which have no disks",
        "partitions": "use fewer and larger streams",
    }.get(binds, "split the traffic over several clusters, or lower the fan-out")
    return ImpossibleError(
        binds,
        f"It would take {least.count} brokers of {least.size.name}, but a cluster has"
        f" {brokers_max} at most. The limit is {binds}: {mend}.",
    )
