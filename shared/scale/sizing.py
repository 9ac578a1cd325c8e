"""Sizes all of Hifi for a traffic: topics, brokers, machines, load balancer, limits and costs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shared.scale.ask import Ask
from shared.scale.brokers import HOURS_A_MONTH, ZONES, BrokerChoice, BrokerLoad, choose_brokers
from shared.scale.catalogue import GB, Catalogue, InstanceSize
from shared.scale.money import (
    Cost,
    Flows,
    balancer_units,
    crossing_bytes_s,
    edge_costs,
    kafka_costs,
)
from shared.scale.ratings import Rating, best_rating
from shared.scale.topic_sizes import PARTITION_USE, TopicSize, topic_sizes

Basis = Literal["measured", "extrapolated", "documented"]

# The planned use of machines at the peak. A nearly full gateway answers late; delivery may be
# fuller, because Kafka buffers its events.
GATEWAY_USE, DELIVERY_USE = 0.6, 0.7
# The bytes of a request's head (method, path, key, length) and answer (status, id, counts).
_REQUEST_BYTES = 800
# The partitions of topics that do not grow with traffic, such as configuration, state and probes.
_SMALL_PARTITIONS = 24
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Group:
    """Machines of one kind: their number, their rating, and how it was extrapolated."""

    what: str
    instance: InstanceSize
    count: int
    # The events/s of one machine while its service keeps its promises.
    rating: float
    rating_name: str
    use: float
    demand: float
    basis: Basis
    note: str


@dataclass(frozen=True, slots=True)
class Need:
    """A resource: the need at the peak, the supply for it, and the source of both figures."""

    resource: str
    needed: float
    there_is: float
    unit: str
    basis: Basis

    @property
    def headroom(self) -> float:
        return self.there_is / self.needed if self.needed else math.inf


@dataclass(frozen=True, slots=True)
class Sizing:
    """The whole sizing of an installation."""

    ask: Ask
    topics: Sequence[TopicSize]
    brokers: BrokerChoice
    gateways: Group
    delivery: Group
    balancer_units: float
    flows: Flows
    needs: Sequence[Need]
    costs: Sequence[Cost]

    @property
    def binds(self) -> Need:
        """The resource that is full first when traffic grows."""
        return min(self.needs, key=lambda need: need.headroom)

    @property
    def usd_month(self) -> float:
        return sum(cost.usd_month for cost in self.costs)


def sizing_of(
    ask: Ask,
    catalogue: Catalogue,
    ratings: Mapping[str, Rating],
    *,
    gateway_instance: str,
    delivery_instance: str,
) -> Sizing:
    """Return the smallest installation for a traffic; ImpossibleError if there is none."""
    gateways = _group(
        "gateway",
        ask,
        demand=ask.events_per_s,
        use=GATEWAY_USE,
        instance=catalogue.instance(gateway_instance),
        ratings=ratings,
    )
    delivery = _group(
        "delivery",
        ask,
        demand=ask.events_per_s * ask.fan_out * (1 + ask.retry_share),
        use=DELIVERY_USE,
        instance=catalogue.instance(delivery_instance),
        ratings=ratings,
    )
    topics = topic_sizes(
        ask, delivery_instances=delivery.count, partition_mb_s=catalogue.partition_mb_s
    )
    load = BrokerLoad(
        in_mb_s=sum(topic.in_bytes_s for topic in topics) / _MB,
        out_mb_s=sum(topic.out_bytes_s for topic in topics) / _MB,
        partitions=sum(topic.partitions for topic in topics) + _SMALL_PARTITIONS,
        stored_bytes=sum(topic.stored_bytes for topic in topics),
    )
    brokers = choose_brokers(
        catalogue, load, ask.kafka, name=ask.broker, survives_zone=ask.survives_zone
    )
    flows = _flows(ask, load)
    units = balancer_units(ask.events_per_s * (ask.event_bytes + _REQUEST_BYTES / ask.batch))
    costs = [
        *kafka_costs(brokers, flows, catalogue.prices),
        *(
            Cost(f"{group.what} machines", group.count * group.instance.usd_h * HOURS_A_MONTH)
            for group in (gateways, delivery)
        ),
        *edge_costs(
            flows,
            catalogue.prices,
            balancer_units=units * ask.mean_share,
            internet_share=ask.internet_share,
        ),
    ]
    needs = _needs(
        ask,
        catalogue,
        streams=topics[0],
        load=load,
        brokers=brokers,
        groups=(gateways, delivery),
    )
    return Sizing(ask, topics, brokers, gateways, delivery, units, flows, needs, costs)


def _group(
    what: str,
    ask: Ask,
    *,
    demand: float,
    use: float,
    instance: InstanceSize,
    ratings: Mapping[str, Rating],
) -> Group:
    size = {"gateway": ask.batch, "delivery": ask.destination_batch}[what]
    name = best_rating(ratings, what, instance=instance.name, batch=size)
    rating = ratings[name]
    is_same = rating.machine.instance == instance.name
    each = rating.rated if is_same else rating.of_core * instance.cores
    count = _machines(demand / (each * use), survives_zone=ask.survives_zone)
    stretched = []
    if not is_same:
        stretched.append(f"{rating.machine.cores} cores of {rating.machine.cpu}")
    if rating.batch != size:
        stretched.append(f"{rating.batch} events a request, not {size}")
    if rating.bytes != ask.event_bytes:
        stretched.append(f"{rating.bytes} bytes an event, not {ask.event_bytes}")
    return Group(
        what,
        instance,
        count,
        each,
        name,
        use,
        demand,
        "extrapolated" if stretched else "measured",
        "; ".join(stretched),
    )


def _machines(needed: float, *, survives_zone: bool) -> int:
    """Return a number of machines, even over the zones, at least one in each; two zones suffice."""
    live_zones = ZONES - 1 if survives_zone else ZONES
    return ZONES * max(1, math.ceil(round(needed / live_zones, 9)))


def _flows(ask: Ask, load: BrokerLoad) -> Flows:
    into, out = (each * _MB * ask.mean_share for each in (load.in_mb_s, load.out_mb_s))
    delivered_s = ask.events_per_s * ask.mean_share * ask.fan_out * (1 + ask.retry_share)
    return Flows(
        into_kafka=into,
        out_of_kafka=out,
        to_destinations=delivered_s * (ask.event_bytes + _REQUEST_BYTES / ask.destination_batch),
        stored=load.stored_bytes,
        crossing=crossing_bytes_s(into, out, reads_own_zone=ask.reads_own_zone),
    )


def _needs(
    ask: Ask,
    catalogue: Catalogue,
    *,
    streams: TopicSize,
    load: BrokerLoad,
    brokers: BrokerChoice,
    groups: Sequence[Group],
) -> list[Need]:
    live = (ZONES - 1) / ZONES if ask.survives_zone else 1.0
    demands = {
        "ingress": load.in_mb_s,
        "egress": load.out_mb_s,
        "disk throughput": load.in_mb_s,
        "network": load.out_mb_s,
        "partitions": float(load.partitions),
        "disk": load.stored_bytes / GB,
    }
    units = {"partitions": "partitions", "disk": "GB"}
    return [
        *(
            Need(
                f"{group.what} machines",
                group.demand,
                group.count * live * group.rating * group.use,
                "events/s",
                group.basis,
            )
            for group in groups
        ),
        *(
            Need(
                f"broker {resource}",
                demands[resource],
                demands[resource] / taken if taken else math.inf,
                units.get(resource, "MB/s"),
                "documented",
            )
            for resource, taken in brokers.taken.items()
        ),
        Need(
            "Kafka partitions of streams",
            streams.in_bytes_s / _MB,
            streams.partitions * PARTITION_USE * catalogue.partition_mb_s,
            "MB/s",
            "documented",
        ),
    ]
