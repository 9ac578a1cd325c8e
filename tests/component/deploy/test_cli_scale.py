"""`hifi plan` and `hifi simulate`: their output, their refusals and their options."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.cli.commands import app
from deploy.cli.scale.inputs import byte_count, span_s
from deploy.cli.scale.simulation_page import simulation_page
from shared.runtime.setup_error import UsageError
from shared.scale.fleet import FleetPlan, LaneLoad, simulate
from shared.scale.policy import policy_of
from shared.scale.site_file import read_sizes
from shared.scale.throughput import Proportional
from shared.scale.traffic import curve_of

RATING = {
    "what": "delivery",
    "machine": {"instance": None, "cpu": "x", "cores": 2, "kernel": ""},
    "commit": "abc1234",
    "at": "2020-01-01",
    "slo": {},
    "batch": 500,
    "bytes": 500,
    "rated": 20_000,
    "saturated": 20_000,
    "steps": [],
    "shared": False,
}


def said(*arguments: str) -> str:
    """Run a command that must succeed, and return its output."""
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: str) -> str:
    """Return the sentence with which a command refuses; main prints it and exits with 1."""
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, UsageError), result.output
    return str(result.exception)


def test_a_plan_says_what_binds_and_how_one_knows() -> None:
    printed = said("plan", "--events-per-s", "1000000", "--fan-out", "2")
    assert "1,000,000 events/s of 500 bytes (500 MB/s; 43.2 TB on a mean day)" in printed
    assert "with one of three zones down" in printed
    assert printed.count("<- limit") == 1
    assert "A gateway machine does" in printed
    assert "limits, not measured on AWS" in printed


@pytest.mark.parametrize(
    ("arguments", "rate", "size"),
    [
        (("--events-per-s", "120000", "--per-day", "5TB"), 120_000, 483),
        (("--per-day", "50TB", "--event-bytes", "500"), 50e12 / 86_400 / 500, 500),
        (("--per-day", "50TB"), 50e12 / 86_400 / 500, 500),
        (("--per-day", "50TB", "--mean-share", "0.5"), 2 * 50e12 / 86_400 / 500, 500),
        (("--events-per-s", "7", "--event-bytes", "2kB"), 7, 2_000),
        (("--events-per-s", "7"), 7, 500),
    ],
)
def test_two_of_rate_size_and_day_give_the_third(
    arguments: tuple[str, ...], rate: float, size: int
) -> None:
    told = json.loads(said("plan", *arguments, "-o", "json"))
    assert told["ask"]["events_per_s"] == pytest.approx(rate)
    assert told["ask"]["event_bytes"] == size
    assert told["binds"] in {need["resource"] for need in told["needs"]}
    assert told["usd_month"] == pytest.approx(sum(cost["usd_month"] for cost in told["costs"]))


def test_the_toml_has_the_sizes_of_the_json() -> None:
    arguments = ("plan", "--events-per-s", "50000", "--kafka", "standard", "--no-zone-loss")
    sizes = read_sizes("sizes.toml", said(*arguments, "--output", "toml"))
    told = json.loads(said(*arguments, "--output", "json"))
    assert sizes.kafka.broker_count == told["brokers"]["count"]
    assert sizes.kafka.broker == told["brokers"]["size"]
    assert sizes.gateway.count_max == told["gateways"]["count"]
    assert sizes.delivery.count_max == told["delivery"]["count"]
    assert sizes.plan["survives_zone"] is False


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Give the traffic: --events-per-s, or --per-day"),
        (("--events-per-s", "5", "--event-bytes", "1", "--per-day", "1TB"), "leave out one"),
        (("--events-per-s", "0", "--per-day", "1TB"), "--events-per-s is 0, which contradicts"),
        (("--event-bytes", "0", "--per-day", "1TB"), "--event-bytes is 0, which contradicts"),
        (("--mean-share", "0", "--per-day", "1TB"), "--mean-share is 0, which contradicts"),
        (("--events-per-s", "0"), "it is 0 and must be above 0"),
        (("--events-per-s", "5", "--retention", "1d"), "need 168 h"),
        (("--events-per-s", "5", "--ratings", "/nowhere"), "no ratings in /nowhere"),
        (("--events-per-s", "5", "--prices", "/nowhere"), "/nowhere cannot be read"),
        (("--events-per-s", "5", "--gateway-instance", "t3.nano"), "not a machine in the price"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_a_sentence(
    arguments: tuple[str, ...], says: str
) -> None:
    assert says in refused("plan", *arguments)


def test_amounts_are_read_as_people_write_them() -> None:
    assert [span_s(text) for text in ("90s", "15m", "1.5h", "7d")] == [90, 900, 5_400, 604_800]
    assert [byte_count(text) for text in ("500", "2kB", "1.5 GB", "50TB")] == [
        *(500, 2_000, 1.5e9, 50e12)
    ]
    for arguments in (("--retention", "a week"), ("--per-day", "much")):
        result = CliRunner().invoke(app, ["plan", "--events-per-s", "5", *arguments])
        assert result.exit_code == 2
        assert "write" in result.output


def test_old_ratings_are_warned_of_beside_the_answer(tmp_path: Path) -> None:
    for what in ("gateway", "delivery"):
        (tmp_path / f"{what}.json").write_text(json.dumps(RATING | {"what": what}))
    arguments = ("plan", "--events-per-s", "5", "--ratings", str(tmp_path), "-o", "json")
    result = CliRunner().invoke(app, arguments)
    assert "gateway.json is" in result.stderr
    assert "rate it again" in result.stderr
    assert json.loads(result.stdout)["gateways"]["rating_name"] == "gateway.json"


SHORT = ("simulate", "spiky", "--hours", "3", "--lanes", "5", "--rating", "20000")


def test_policies_are_compared_on_the_same_day() -> None:
    printed = said(*SHORT, "--policy", "load:0.7", "--policy", "fixed:3")
    assert "spiky: 3 h, 1,172,669,171 events" in printed
    rows = [line.split() for line in printed.splitlines()[-2:]]
    assert [row[0] for row in rows] == ["load:0.7", "fixed:3"]
    assert said(*SHORT, "--policy", "load:0.7", "--policy", "fixed:3") == printed
    assert said(*SHORT, "--policy", "load:0.7", "--seed", "2") not in printed


def test_a_simulation_for_programs_conserves_its_events() -> None:
    told = json.loads(said(*SHORT, "--held", "1", "-o", "json"))
    assert list(told["policies"]) == [
        *("load:0.7", "aws-load:0.7", "cpu:0.6", "cpu:0.6+lag:5", "lag:5")
    ]
    for run in told["policies"].values():
        assert run["arrived"] == run["delivered"] + run["waiting"] + run["held"]
    assert told["fleet"]["throughput"] == {"rating": 20_000}


def test_a_recorded_day_is_followed(tmp_path: Path) -> None:
    trace = tmp_path / "day.csv"
    trace.write_text("time,rate\n0,1000\n600,9000\n1200,1000\n")
    told = said("simulate", "--from", str(trace), "--rating", "1000", "--policy", "load:0.7")
    assert "day.csv: 0.5 h, 6,600,000 events" in told
    trace.write_text("time,rate\n0,x\n")
    assert "Row 2 of the trace is '0,x'" in refused("simulate", "--from", str(trace))


def test_lanes_may_be_unequal_and_the_largest_is_the_first_to_be_late() -> None:
    day = ("simulate", "steady", "--hours", "1", "--mean", "50000", "--rating", "20000")
    few = (*day, "--lanes", "8", "--policy", "fixed:6", "-o", "json")
    late = [
        json.loads(said(*few, "--skew", skew))["policies"]["fixed:6"]["worst_age_s"]
        for skew in ("0", "1.5")
    ]
    # The first of eight shards then has half of all events: too many for one machine.
    assert late[0] < 60 < late[1]
    spread = json.loads(said(*few, "--skew", "1.5", "--shards", "16"))
    assert spread["policies"]["fixed:6"]["worst_age_s"] < 60
    assert spread["policies"]["fixed:6"]["arrived"] > 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--min", "5", "--max", "4"), "--min 5 is above --max 4"),
        (("--lanes", "2", "--held", "3"), "--held 3 is above --lanes 2"),
        (("--policy", "magic"), "'magic' is not a policy"),
        (("--from", "/nowhere.csv"), "/nowhere.csv cannot be read"),
        (("--ratings", "/nowhere"), "no ratings in /nowhere"),
        (("--hours", "0.1", "--policy", "fixed:3", "--html", "/nowhere/x.html"), "cannot be writ"),
    ],
)
def test_what_cannot_be_simulated_is_refused_in_a_sentence(
    arguments: tuple[str, ...], says: str
) -> None:
    assert says in refused("simulate", *arguments)


class Tags(HTMLParser):
    """Counts the tags and texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        self.tags.append(tag)
        self.places |= {str(value) for name, value in attrs if name in {"src", "href"}}


def test_the_page_has_three_plots_for_each_policy_and_needs_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "day.html"
    said(*SHORT, "--policy", "load:0.7", "--policy", "lag:5", "--html", str(page))
    read = Tags()
    read.feed(page.read_text())
    assert read.tags.count("svg") == 2 * 3
    assert read.tags.count("path") == 2 * 4
    assert read.places == set()
    assert "script" not in read.tags


def test_a_page_escapes_what_it_is_told_and_shows_a_peak_of_a_second() -> None:
    rates = [10.0] * 5_000 + [900.0] + [10.0] * 5_000
    plan = FleetPlan(throughput=Proportional(10_000.0))
    run = simulate([LaneLoad(curve_of(rates))], plan, policy_of("fixed:3"))
    page = simulation_page("<b>a & b</b>", {"<script>": run})
    assert "&lt;b&gt;a &amp; b&lt;/b&gt;" in page
    assert "<script>" not in page
    # The maximum is 30,000, at 120 pixels; so 900 is 3.6 pixels above the floor.
    assert " 124.4" in page
    empty = simulate([], plan, policy_of("fixed:3"))
    assert 'd=""' in simulation_page("nothing", {"fixed:3": empty})
