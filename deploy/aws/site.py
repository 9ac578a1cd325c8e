"""Reads a site on AWS: a TOML file, with the sizes that `hifi plan --output toml` writes."""

import ipaddress
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from deploy.cli.scale.inputs import PRICES
from shared.scale.catalogue import BrokerSize, read_catalogue
from shared.scale.scale_error import ScaleError
from shared.scale.site_file import SiteSizes, read_sizes

ZONE_COUNT = 3
# MSK's names for a release of Kafka: `.kraft` means Standard without ZooKeeper (MSK's page on
# KRaft, and the CDK's KafkaVersion). `aws kafka list-kafka-versions` lists the available ones.
_KAFKA_VERSIONS = {"express": "3.9.x", "standard": "3.9.x.kraft"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """All settings of the stacks. The first part is [site] of the file."""

    # The prefix of all names.
    name: str
    region: str
    zones: tuple[str, ...]
    # The name that people and programs send to, and its certificate in ACM.
    domain: str
    certificate: str
    # The machines' image, which the image pipeline makes.
    image: str
    # The tarball for the next image, in the bucket of releases.
    release: str
    # The address that alarms go to.
    email: str
    cidr: str = "10.40.0.0/16"
    # The share of the machines above the minimum that AWS may take away at two minutes' notice.
    spot_share: float = 0.5
    observers: int = 1
    observe_instance: str = "c7g.xlarge"
    # The end-to-end p95 above which the scaling was wrong.
    lag_target_s: float = 5.0
    # How workers reach destinations: from three permanent addresses, which costs money for each
    # byte, or from a temporary address of each machine.
    way_out: str = "nat"
    spark_master: str = "local"
    kafka_version: str = ""

    sizes: SiteSizes
    gateway_cores: int
    broker: BrokerSize

    @property
    def kafka_release(self) -> str:
        return self.kafka_version or _KAFKA_VERSIONS[self.sizes.kafka.kind]

    @property
    def is_express(self) -> bool:
        return self.sizes.kafka.kind == "express"

    def named(self, what: str) -> str:
        return f"hifi-{self.name}-{what}"


_READ = ("sizes", "gateway_cores", "broker")
_OF_FILE = {each.name: each for each in fields(Site) if each.name not in _READ}
_ZONE = r"[a-z]{2}(-[a-z]+)+-\d[a-z]"

# The rule for each value, and its description for people.
_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda v: bool(re.fullmatch(r"[a-z][a-z0-9-]{0,15}", v)), "up to 16 of a-z, 0-9, -"),
    "region": (lambda v: bool(re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", v)), "such as us-east-1"),
    "zones": (
        lambda v: (
            len(set(v)) == len(v) == ZONE_COUNT
            and all(isinstance(zone, str) and re.fullmatch(_ZONE, zone) for zone in v)
        ),
        "three zones of the region",
    ),
    "domain": (lambda v: bool(re.fullmatch(r"([a-z0-9-]+\.)+[a-z]+", v)), "a name in DNS"),
    "certificate": (
        lambda v: bool(re.fullmatch(r"arn:aws[a-z-]*:acm:[a-z0-9-]+:\d{12}:certificate/\S+", v)),
        "the ARN of a certificate in ACM",
    ),
    "image": (lambda v: bool(re.fullmatch(r"ami-[0-9a-f]{8,17}", v)), "such as ami-0123456789abc"),
    "release": (lambda v: bool(re.fullmatch(r"[\w.-]+\.tar\.gz", v)), "a file called *.tar.gz"),
    "email": (lambda v: "@" in v, "an address"),
    "cidr": (lambda v: ipaddress.ip_network(v).prefixlen == 16, "a network of 16 bits (/16)"),  # noqa: PLR2004 - said beside it
    "spot_share": (lambda v: 0 <= v <= 1, "from 0 to 1"),
    "way_out": (lambda v: v in {"nat", "address"}, "nat or address"),
    "observers": (lambda v: v in {1, 2}, "1 or 2"),
    "lag_target_s": (lambda v: v > 0, "above 0"),
}


def read_site(name: str, text: str) -> Site:
    """Read the site from a file called `name`; ScaleError describes an error in one sentence."""
    sizes = read_sizes(name, text, beside="site")
    values = tomllib.loads(text).get("site")
    if not isinstance(values, dict):
        raise ScaleError(f"{name} has no table [site]: docs/aws.md shows one.")
    for key in values.keys() - _OF_FILE.keys():
        raise ScaleError(f"{name}: [site] has no setting {key!r}.")
    for key, field in _OF_FILE.items():
        if key not in values and field.default is MISSING:
            raise ScaleError(f"{name}: [site] must have {key}.")
        if key in values:
            _check(name, key, values[key], field.type)
    values["zones"] = tuple(values["zones"])
    if any(not zone.startswith(values["region"]) for zone in values["zones"]):
        raise ScaleError(f"{name}: zones must be three zones of the region, {values['region']}.")
    _check_sizes(name, sizes)
    catalogue = read_catalogue(PRICES.name, PRICES.read_text(encoding="utf-8"))
    brokers = {size.name: size for size in catalogue.broker_sizes}
    broker = brokers.get(sizes.kafka.broker)
    if broker is None or broker.kind != sizes.kafka.kind:
        raise ScaleError(
            f"{name}: {sizes.kafka.broker!r} is not among the {sizes.kafka.kind} brokers of the"
            " price file."
        )
    cores = catalogue.instance(sizes.gateway.instance).cores
    return Site(**values, sizes=sizes, gateway_cores=cores, broker=broker)


def _check(name: str, key: str, value: object, kind: Any) -> None:
    wanted: type = {"zones": list}.get(key, kind)
    is_number = wanted is float and isinstance(value, int) and not isinstance(value, bool)
    fits = type(value) is wanted or is_number
    holds, how = _RULES.get(key, (bool, "something"))
    try:
        fits = fits and (key == "kafka_version" or holds(value))
    except ValueError:
        fits = False
    if not fits:
        raise ScaleError(f"{name}: {key} is {value!r}, and must be {how}.")


def _check_sizes(name: str, sizes: SiteSizes) -> None:
    if sizes.kafka.broker_count < ZONE_COUNT or sizes.kafka.broker_count % ZONE_COUNT:
        raise ScaleError(
            f"{name}: broker_count is {sizes.kafka.broker_count}, and must be a multiple of"
            f" {ZONE_COUNT}, with as many in each zone."
        )
    if (sizes.kafka.kind == "express") == bool(sizes.kafka.disk_gb):
        raise ScaleError(f"{name}: standard brokers need disk_gb, and express brokers have none.")
    for group in ("gateway", "delivery"):
        each = getattr(sizes, group)
        if not 0 < each.count_min <= each.count_max:
            raise ScaleError(
                f"{name}: [{group}] has from {each.count_min} to {each.count_max} machines, which"
                " is not a range."
            )
        if not (each.rating > 0 and 0 < each.use < 1):
            raise ScaleError(f"{name}: [{group}] needs a rating above 0 and a use between 0 and 1.")
