"""A plan reproduces published examples, names the binding limit, and refuses the impossible."""

from dataclasses import replace
from pathlib import Path

import pytest

from shared.event.topics import STREAM_PREFIX, STREAM_RETENTION_MS
from shared.scale.ask import Ask
from shared.scale.brokers import NEAR_LEAST, BrokerLoad, brokers_of, choose_brokers
from shared.scale.catalogue import BrokerKind, read_catalogue
from shared.scale.money import Flows, balancer_units, crossing_bytes_s, kafka_costs
from shared.scale.ratings import read_rating
from shared.scale.scale_error import ImpossibleError, ScaleError
from shared.scale.site_file import read_sizes, site_sizes, to_toml
from shared.scale.sizing import Sizing, sizing_of
from shared.scale.topic_sizes import PARTITION_GROWTH, rounded
from tests.tidy import sources

CATALOGUE = read_catalogue(
    "prices", (sources.ROOT / "deploy/cli/scale/aws-us-east-1.json").read_bytes()
)
RATINGS = {
    path.name: read_rating(path.name, path.read_bytes())
    for path in Path(sources.ROOT / "loadtests/ratings").glob("*-by-hand.json")
}
SIZES = {size.name: size for size in CATALOGUE.broker_sizes}
MILLION = Ask(1_000_000, fan_out=2)
DAY_S = 86_400


def plan(ask: Ask, *, instance: str = "c7g.2xlarge") -> Sizing:
    return sizing_of(ask, CATALOGUE, RATINGS, gateway_instance=instance, delivery_instance=instance)


def count(name: str, load: BrokerLoad, *, use: float | None = None) -> int:
    return brokers_of(
        SIZES[name], load, disk_gb_max=CATALOGUE.disk_gb_max, use=use, survives_zone=False
    ).count


# Published examples. 1 to 4 are from AWS: the page on best practices for Express brokers, and its
# agent toolkit (d6ad2e4), whose program msk_sizing.py was run with the text's example.
def test_example_1_45_mb_in_and_90_out_are_three_large_express_brokers() -> None:
    assert count("express.m7g.large", BrokerLoad(45, 90, 0), use=1.0) == 3


def test_example_2_100_mb_to_five_groups_are_six_2xlarge_express_brokers() -> None:
    choice = brokers_of(
        SIZES["express.m7g.2xlarge"],
        BrokerLoad(100, 500, 0),
        disk_gb_max=0,
        use=1.0,
        survives_zone=False,
    )
    assert (choice.count, choice.binds) == (6, "egress")


@pytest.mark.parametrize(
    ("name", "brokers"),
    [
        *(("express.m7g.large", 45), ("express.m7g.xlarge", 24), ("express.m7g.2xlarge", 12)),
        *(("express.m7g.4xlarge", 6), ("express.m7g.8xlarge", 3), ("express.m7g.16xlarge", 3)),
        *(("kafka.m7g.large", 84), ("kafka.m7g.xlarge", 42), ("kafka.m7g.2xlarge", 21)),
        *(("kafka.m7g.4xlarge", 12), ("kafka.m7g.8xlarge", 9), ("kafka.m7g.16xlarge", 9)),
    ],
)
def test_example_3_500_mb_in_and_1000_out_at_the_peak(name: str, brokers: int) -> None:
    # 1,000 partitions with their copies; kept for a day on disk, 100 MB/s on average.
    load = BrokerLoad(500, 1_000, 333, stored_bytes=100 * 2**20 * DAY_S)
    assert count(name, load) == brokers


def test_example_4_costs_what_the_program_says() -> None:
    # 100 MiB/s for 720 h on six Express 4xlarge: $45,597.10 a month.
    mib = 100 * 2**20
    flows = Flows(
        into_kafka=mib,
        out_of_kafka=2 * mib,
        to_destinations=0,
        stored=mib * 720 * 3_600,
        crossing=crossing_bytes_s(mib, 2 * mib, reads_own_zone=True),
    )
    choice = brokers_of(
        SIZES["express.m7g.4xlarge"],
        BrokerLoad(500, 1_000, 333),
        disk_gb_max=0,
        survives_zone=False,
    )
    costs = kafka_costs(choice, flows, CATALOGUE.prices)
    assert sum(cost.usd_month for cost in costs) == pytest.approx(45_597.10, abs=0.01)


def test_example_5_what_a_day_of_500_mb_is() -> None:
    # AutoMQ's comparison of Kafka providers: 24 h of 500 MB/s are 42,187.5 GB (both binary).
    ask = Ask(500 * 2**20 / 617, event_bytes=500, fan_out=1)
    stored = plan(ask).topics[0].stored_bytes / 7
    assert stored / 2**30 == pytest.approx(42_187.5)


def test_example_6_partitions_are_the_most_of_producers_and_consumers_needs() -> None:
    # Cloudera's page on the number of partitions, by Jun Rao's max(t/p, t/c): 1,000 MB/s with 50
    # MB/s for each consumer are 20. In Hifi a consumer is a machine, and a partition takes 7.5
    # MB/s.
    ask = Ask(events_per_s=1_000e6 / 617, fan_out=1)
    sizing = plan(ask)
    for_bytes = 1_000 * PARTITION_GROWTH / 7.5
    wanted = max(for_bytes, sizing.delivery.count)
    assert sizing.topics[0].partitions == rounded(int(wanted)) >= wanted


def test_example_7_300_kb_a_second_are_1_08_capacity_units() -> None:
    # AWS' page on prices of load balancers, first example: 1 new connection/s of 2 minutes each, 5
    # requests/s with 300 KB, 60 rules of which 10 are free.
    units = balancer_units(300_000, new_connections_s=1, connections=120, rules_s=5 * 50)
    assert units == pytest.approx(1.08)
    assert balancer_units(0, new_connections_s=50) == 2


@pytest.mark.parametrize(
    ("fan_out", "name", "brokers"),
    [
        *((1, "express.m7g.16xlarge", 3), (1, "express.m7g.8xlarge", 6)),
        (3, "express.m7g.12xlarge", 6),
    ],
)
def test_a_million_events_of_600_bytes_with_a_zone_away(
    fan_out: int, name: str, brokers: int
) -> None:
    # Worked out by hand: 600 MB/s in, all of which each destination reads.
    load = BrokerLoad(600, 600 * fan_out, 96)
    assert brokers_of(SIZES[name], load, disk_gb_max=0).count == brokers


def test_gateways_survive_a_zone() -> None:
    # 1,000,000 of 518,000 x 0.6 are 3.2 machines: two in each zone, so that four are left.
    rating = RATINGS["gateway-8-cores-by-hand.json"]
    gateways = plan(Ask(1_000_000)).gateways
    assert (gateways.count, gateways.rating) == (6, rating.rated)
    assert plan(Ask(1_000_000, survives_zone=False)).gateways.count == 6
    assert plan(Ask(100)).gateways.count == 3


@pytest.mark.parametrize(
    ("ask", "limit", "says"),
    [
        ({"retention_s": 3 * DAY_S}, "retention", "need 168 h. Plan for a longer retention"),
        ({"event_bytes": 2_000_000}, "event size", "its limit is 1,000,000"),
        ({"hot_key_share": 0.5}, "one Kafka partition", "308.5 MB/s"),
        ({"partitions": 12}, "Kafka partitions", "617.0 MB/s need 83"),
        ({"fan_out": 100, "retry_share": 0.0}, "egress", "lower the fan-out"),
        ({"events_per_s": 40_000_000, "fan_out": 0.1}, "ingress", "several clusters"),
        ({"kafka": "standard", "retention_s": 400 * DAY_S}, "disk", "take Express brokers"),
        ({"streams": 1_000_000, "events_per_s": 1_000}, "partitions", "fewer and larger streams"),
    ],
)
def test_what_cannot_be_is_refused_with_the_limit_that_binds(
    ask: dict[str, float], limit: str, says: str
) -> None:
    with pytest.raises(ImpossibleError) as told:
        plan(replace(MILLION, **ask))  # type: ignore[arg-type]
    assert told.value.limit == limit
    assert says in str(told.value)


def test_too_few_partitions_for_those_who_share_them_are_refused() -> None:
    with pytest.raises(ImpossibleError, match="machines share it, and each needs at least one"):
        plan(Ask(100_000, event_bytes=10, fan_out=50, partitions=12))
    assert plan(Ask(100_000, partitions=90)).topics[0].partitions == 90


@pytest.mark.parametrize(
    "wrong",
    [
        *({"events_per_s": 0}, {"event_bytes": -1}, {"batch": 0}, {"destination_batch": 0}),
        *({"streams": 0}, {"retention_s": 0}, {"mean_share": 2}, {"hot_key_share": -1}),
        *({"retry_share": 2}, {"dead_share": 2}, {"internet_share": 2}, {"fan_out": -1}),
        *({"outage_s": -1}, {"broker": "kafka.t3.small"}),
    ],
)
def test_an_ask_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ScaleError) as told:
        plan(replace(MILLION, **wrong))  # type: ignore[arg-type]
    assert not isinstance(told.value, ImpossibleError)


def test_an_unknown_machine_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ScaleError, match=r"'t3.nano' is not a machine in .* \(c7g.large"):
        plan(MILLION, instance="t3.nano")
    with pytest.raises(ScaleError, match=r"p\.json is not a price file: Input data was truncated"):
        read_catalogue("p.json", "{")


def test_what_binds_is_what_is_full_first() -> None:
    sizing = plan(MILLION)
    binds = sizing.binds
    assert binds.headroom == min(need.headroom for need in sizing.needs) >= 1
    # With this much more traffic, the plan must have more of that resource.
    more = plan(replace(MILLION, events_per_s=1_000_000 * binds.headroom * 1.001))
    (same,) = [need for need in more.needs if need.resource == binds.resource]
    assert same.there_is > binds.there_is
    less = plan(replace(MILLION, events_per_s=1_000_000 * binds.headroom * 0.999))
    (same,) = [need for need in less.needs if need.resource == binds.resource]
    assert same.there_is == pytest.approx(binds.there_is)


@pytest.mark.parametrize("kafka", ["express", "standard"])
@pytest.mark.parametrize("survives_zone", [True, False])
def test_everything_that_is_needed_is_there(kafka: BrokerKind, *, survives_zone: bool) -> None:
    sizing = plan(Ask(100_000, fan_out=2, kafka=kafka, survives_zone=survives_zone))
    assert all(need.headroom >= 1 for need in sizing.needs)
    assert sizing.usd_month == sum(cost.usd_month for cost in sizing.costs) > 0
    assert all(cost.usd_month >= 0 for cost in sizing.costs)
    nothing_read = plan(Ask(1_000, fan_out=0, survives_zone=survives_zone, kafka=kafka))
    assert all(need.headroom >= 1 for need in nothing_read.needs)


def test_few_brokers_are_chosen_that_cost_little_more_unless_a_size_is_named() -> None:
    load = BrokerLoad(100, 200, 100)
    chosen = choose_brokers(CATALOGUE, load, "express")
    others = [
        choose_brokers(CATALOGUE, load, "express", name=name)
        for name, size in SIZES.items()
        if size.kind == "express"
    ]
    least = min(other.usd_month for other in others)
    near = [other.count for other in others if other.usd_month <= NEAR_LEAST * least]
    assert chosen.usd_month <= NEAR_LEAST * least
    assert chosen.count == min(near)
    with pytest.raises(ScaleError, match=r"not a standard broker in .* \(kafka.m7g.large"):
        choose_brokers(CATALOGUE, load, "standard", name="express.m7g.large")


def test_a_rating_of_the_very_machine_is_taken_as_it_is() -> None:
    rating = RATINGS["gateway-8-cores-by-hand.json"]
    named = rating.__class__(
        **{name: getattr(rating, name) for name in rating.__struct_fields__ if name != "machine"},
        machine=rating.machine.__class__(cpu="Graviton3", cores=4, instance="c7g.xlarge"),
    )
    sizing = sizing_of(
        Ask(1_000),
        CATALOGUE,
        {**RATINGS, "named": named},
        gateway_instance="c7g.xlarge",
        delivery_instance="c7g.large",
    )
    assert (sizing.gateways.basis, sizing.gateways.note) == ("measured", "")
    assert sizing.gateways.rating == rating.rated
    # Two cores of another kind, scaled to two of these.
    assert sizing.delivery.basis == "extrapolated"
    assert sizing.delivery.note == "2 cores of shared Xeon"
    other = replace(Ask(1_000), event_bytes=5_000, batch=1)
    assert plan(other).gateways.note == (
        "8 cores of 16-core machine, unnamed; 100 events a request, not 1;"
        " 500 bytes an event, not 5000"
    )


@pytest.mark.parametrize("kafka", ["express", "standard"])
def test_the_site_file_carries_the_sizes_of_the_plan(kafka: BrokerKind) -> None:
    sizing = plan(Ask(100_000, fan_out=2, kafka=kafka, streams=4))
    written = site_sizes(sizing, region=CATALOGUE.region, prices_at=CATALOGUE.at)
    read = read_sizes("site.toml", to_toml(written))
    assert read == written
    assert read.kafka.broker_count == sizing.brokers.count
    assert (read.gateway.count_max, read.delivery.count_max) == (
        sizing.gateways.count,
        sizing.delivery.count,
    )
    assert read.topics.stream_partitions * 4 == sizing.topics[0].partitions
    assert read.topics.stream_retention_ms == STREAM_RETENTION_MS
    assert sizing.topics[0].name == f"{STREAM_PREFIX}*"
    stored = 3 * sizing.flows.stored / sizing.brokers.count / 2**30
    assert (read.kafka.disk_gb >= stored * 2) == (kafka == "standard")


@pytest.mark.parametrize("text", ["[plan", "[plan]\nx = 1\n", "[kafka]\nkind = 'mine'\n"])
def test_what_is_no_site_file_is_refused(text: str) -> None:
    with pytest.raises(ScaleError, match=r"site.toml has no sizes of a plan: .*hifi plan"):
        read_sizes("site.toml", text)


def test_partitions_divide_evenly_over_zones_and_machines() -> None:
    assert [rounded(n) for n in (0, 1, 3, 4, 7, 12, 13, 80)] == [3, 3, 3, 6, 12, 12, 24, 84]
