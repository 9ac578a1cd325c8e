"""Bounds how many objects one tenant may set up, because all tenants share Kafka and processes.

Each change checks its bounds on the newest configuration, so even requests to several gateways at
once cannot exceed a bound.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from gateway.problems import Problem
from gateway.settings import Settings
from shared.config.configuration import Configuration, RemovedStream, Stream

Bounded: TypeAlias = Literal[
    "streams",
    "partitions",
    "destinations",
    "pipelines",
    "tables",
    "table_bytes",
    "channels",
    "keys",
]
# Explains why more objects count than a list shows.
_WITH_REMOVED = " (including removed ones that are still kept)"
_REMOVED_COUNT = frozenset({"streams", "partitions", "destinations", "pipelines", "tables"})


def check_bounds(
    tenant: str, configuration: Configuration, settings: Settings, more: Mapping[Bounded, int]
) -> None:
    """Refuse additions that take a tenant beyond a bound; never refuse existing objects."""
    shown = bounds_of(tenant, configuration, settings)
    for name, count in more.items():
        used, bound = shown[name]["used"], shown[name]["max"]
        if count > 0 and used + count > bound:
            note = _WITH_REMOVED if name in _REMOVED_COUNT else ""
            raise Problem(
                "bound_reached",
                f"The tenant {tenant!r} has {used} {name}{note}, this needs {count} more, and"
                f" its bound is {bound}. The operator of Hifi can raise it:"
                f" PUT /v1/tenants/{tenant} with {name}_max.",
                members={"bound": name, "used": used, "max": bound},
            )


def bounds_of(
    tenant: str, configuration: Configuration, settings: Settings
) -> Mapping[Bounded, Mapping[str, int]]:
    """Return how many of each kind of object a tenant has, and its bound."""
    own = configuration.tenants.get(tenant)
    used: Mapping[Bounded, int] = {
        "streams": sum(1 for _ in _streams(tenant, configuration)),
        "partitions": sum(each.partition_count for each in _streams(tenant, configuration)),
        "destinations": sum(1 for _ in _destinations(tenant, configuration)),
        "pipelines": sum(
            each.tenant == tenant
            for known in (configuration.pipelines, configuration.removed_pipelines)
            for each in known.values()
        ),
        "tables": sum(
            each.tenant == tenant
            for known in (configuration.tables, configuration.removed_tables)
            for each in known.values()
        ),
        "table_bytes": sum(
            each.bytes_max for each in configuration.tables.values() if each.tenant == tenant
        ),
        "channels": sum(each.tenant == tenant for each in configuration.channels.values()),
        "keys": sum(key.tenant == tenant for key in configuration.keys.values()),
    }

    def bound(name: Bounded) -> int:
        set_for_it = getattr(own, f"{name}_max", None)
        return int(getattr(settings, f"tenant_{name}_max") if set_for_it is None else set_for_it)

    return {name: {"used": count, "max": bound(name)} for name, count in used.items()}


def _streams(tenant: str, configuration: Configuration) -> Iterator[Stream | RemovedStream]:
    # Kafka keeps the topics of removed streams.
    for streams in (configuration.streams, configuration.removed_streams):
        yield from (each for each in streams.values() if each.tenant == tenant)


def _destinations(tenant: str, configuration: Configuration) -> Iterator[str]:
    ours = {each.name for each in _streams(tenant, configuration)}
    yield from (each.id for each in configuration.destinations.values() if each.stream in ours)
    # Every process still keeps removed destinations in memory.
    gone = configuration.removed_destinations.values()
    yield from (each.id for each in gone if each.tenant == tenant)
