"""Sizes all of Hifi for an ask: topics, brokers, machines, balancer; what binds; what it costs."""

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

# Up to here machines are used at the peak. A gateway's answers come late when it is nearly full;
# delivery has Kafka before it, and may be fuller.
GATEWAY_USE, DELIVERY_USE = 0.6, 0.7
# Head and answer of a request: method, path, key, length; status, id, counts.
_REQUEST_BYTES = 800
# Topics of Hifi that do not grow with traffic: configuration, state, marks, probes and the like.
_SMALL_PARTITIONS = 24
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Group:
    """Machines of one kind: how many, by which rating, and how far that was stretched."""

    what: str
    instance: InstanceSize
    count: int
    # Events/s of one machine, within its service's promises.
    rating: float
    rating_name: str
    use: float
    demand: float
    basis: Basis
    note: str


@dataclass(frozen=True, slots=True)
class Need:
    """A resource: the need at the peak, the supply for it, and how one knows."""

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
    """All of it."""

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
    """The smallest installation that carries an ask; ImpossibleError if there is none."""
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
    """Evenly over the zones, so that two of them are enough; at least one in each."""
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
