"""Reads a cloud's dated price file: brokers, machines, their documented limits and their prices."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from shared.scale.scale_error import ScaleError

# The gigabytes that AWS bills.
GB = 2**30

BrokerKind = Literal["express", "standard"]

# A Standard broker's own bytes for each incoming byte, with a zone down: it writes the event and
# its copies, serves lagging consumers, and moves partitions (AWS' msk_sizing.py: 1.5 + 1.5 + 0.5 +
# 3.0 to the disk, 2.2 + 0.5 + 3.0 from the network card).
_DISK_OF_IN, _NETWORK_OF_IN = 6.5, 5.7
# Consumers of three zones read from two of them when one is down.
_NETWORK_OF_OUT = 1.5


class BrokerSize(msgspec.Struct, frozen=True):
    """A size of brokers. MB/s are 10**6 or 2**20 bytes: vendors do not say which."""

    name: str
    kind: BrokerKind
    # The recommended number of replicas of Kafka partitions.
    partitions: int
    usd_h: float
    # Express: the clients' traffic that it sustains.
    in_mb_s: float = 0.0
    out_mb_s: float = 0.0
    # Standard: the throughput of its disk and its network card.
    disk_mb_s: float = 0.0
    network_mb_s: float = 0.0

    def carries(self, in_mb_s: float, out_mb_s: float) -> dict[str, float]:
        """Return the number of brokers of this size that a traffic needs, by resource."""
        if self.kind == "express":
            return {"ingress": in_mb_s / self.in_mb_s, "egress": out_mb_s / self.out_mb_s}
        network_mb_s = _NETWORK_OF_IN * in_mb_s + _NETWORK_OF_OUT * out_mb_s
        return {
            "disk throughput": _DISK_OF_IN * in_mb_s / self.disk_mb_s,
            "network": network_mb_s / self.network_mb_s,
        }


class InstanceSize(msgspec.Struct, frozen=True):
    name: str
    cores: int
    usd_h: float


class Prices(msgspec.Struct, frozen=True):
    """US dollars. GB are 2**30 bytes."""

    storage_gb_month: float
    express_in_gb: float
    zone_crossing_gb: float
    balancer_h: float
    balancer_unit_h: float
    nat_gb: float
    internet_gb: float


class Catalogue(msgspec.Struct, frozen=True):
    """One region of one cloud, on the day of the price file."""

    region: str
    at: str
    # The source of each part: a page, a program, or, if it says so, somebody's memory.
    sources: Mapping[str, str]
    broker_sizes: Sequence[BrokerSize]
    instance_sizes: Sequence[InstanceSize]
    # The maximum number of brokers in one cluster.
    brokers_max: int
    # The limit of one Kafka partition in MB/s.
    partition_mb_s: float
    # The largest disk of one Standard broker.
    disk_gb_max: int
    prices: Prices

    def instance(self, name: str) -> InstanceSize:
        for size in self.instance_sizes:
            if size.name == name:
                return size
        known = ", ".join(size.name for size in self.instance_sizes)
        raise ScaleError(f"{name!r} is not a machine in the price file ({known}).")


def read_catalogue(name: str, text: bytes | str) -> Catalogue:
    """Read the price file called `name`; ScaleError says what is wrong with it."""
    try:
        return msgspec.json.decode(text, type=Catalogue)
    except msgspec.MsgspecError as error:
        raise ScaleError(f"{name} is not a price file: {error}.") from error
