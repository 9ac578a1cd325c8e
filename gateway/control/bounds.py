"""Bounds how much of what all tenants share one of them may set up.

Checked within the change itself, on the newest configuration there is: however many gateways are
asked at once, nobody gets beyond a bound.
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
# Why there is more in use than is listed.
_HELD = " (removed ones that are still kept count too)"
_REMOVED_COUNT = frozenset({"streams", "partitions", "destinations", "pipelines", "tables"})


def check_bounds(
    tenant: str, configuration: Configuration, settings: Settings, more: Mapping[Bounded, int]
) -> None:
    """Refuse additions that take a tenant beyond a bound; existing objects may always stay."""
    shown = bounds_of(tenant, configuration, settings)
    for name, count in more.items():
        used, bound = shown[name]["used"], shown[name]["max"]
        if count > 0 and used + count > bound:
            held = _HELD if name in _REMOVED_COUNT else ""
            raise Problem(
                "bound_reached",
                f"The tenant {tenant!r} has {used} {name}{held}, this takes {count} more, and"
                f" {bound} is its bound. The operator of Hifi can raise it:"
                f" PUT /v1/tenants/{tenant} with {name}_max.",
                members={"bound": name, "used": used, "max": bound},
            )


def bounds_of(
    tenant: str, configuration: Configuration, settings: Settings
) -> Mapping[Bounded, Mapping[str, int]]:
    """How much of everything a tenant uses, and how much it may."""
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
    # Kafka keeps the topics of those that were removed.
    for streams in (configuration.streams, configuration.removed_streams):
        yield from (each for each in streams.values() if each.tenant == tenant)


def _destinations(tenant: str, configuration: Configuration) -> Iterator[str]:
    ours = {each.name for each in _streams(tenant, configuration)}
    yield from (each.id for each in configuration.destinations.values() if each.stream in ours)
    # Every process goes on knowing of those that were removed.
    gone = configuration.removed_destinations.values()
    yield from (each.id for each in gone if each.tenant == tenant)
