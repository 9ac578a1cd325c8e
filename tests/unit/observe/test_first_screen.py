"""The first screen never misleads: an event counts once, and each destination has a verdict."""

from dataclasses import replace

from console.page_context import PageContext
from console.pages.destinations.destination_pages import destination_page
from console.pages.overview_page import headline, overview_page
from console.parts.pieces import term
from console.viewers import ANYBODY, Viewer
from observe.metrics import ObserveMetrics
from shared import wording
from shared.config.configuration import Configuration
from shared.config.destination import Destination
from shared.proof.balance import Balance
from shared.proof.last_answer import LastAnswer
from shared.proof.overview import Overview, RecentOutcomes, StreamVerdict, StreamView
from tests.support.console.console_fixtures import destination_view, overview

AT_MS = 1_790_000_000_000


def test_an_event_counts_once_however_many_destinations_want_it() -> None:
    one = replace(
        destination_view("orders", "a", at_ms=AT_MS), balance=Balance(acked=1, delivered=1)
    )
    two = replace(one, name="b", destination_id="orders/b")
    orders = StreamView("orders", StreamVerdict.OK, "", 0.0, None, (one, two), acked=1)
    alone = StreamView("alone", StreamVerdict.OK, "", 0.0, None, (), acked=4)
    shown = Overview(AT_MS, (orders,), overview().audit)
    assert headline(shown) == "The one acknowledged event is accounted for."
    both = replace(shown, streams=(orders, alone))
    assert headline(both) == "All 5 acknowledged events are accounted for."
    page = "".join(
        region.content for region in overview_page(PageContext(both, Configuration()), {}).regions
    )
    # Each count links to the page of the things that it counts.
    for name, count, path in (
        ("events acknowledged", 5, "/streams"),
        ("deliveries due", 2, "/destinations"),
        ("delivered", 2, "/destinations"),
    ):
        figure = f'<a href="{path}" class="figure">{count}</a>'
        assert f"<dt>{term(name)}</dt><dd>{figure}</dd>" in page
    assert f"<dt>{term('dead letters')}</dt><dd><span>0</span></dd>" in page


def test_every_verdict_is_said_of_one_and_of_several() -> None:
    fine = overview(at_ms=AT_MS)
    for verdict in set(StreamVerdict) - {StreamVerdict.OK}:
        ours = [replace(each, verdict=verdict, reason="") for each in fine.streams[0].destinations]
        for some in (ours[:1], ours):
            stream = replace(fine.streams[0], verdict=verdict, destinations=tuple(some))
            said = headline(replace(fine, streams=(stream,)))
            assert said.startswith(" and ".join(each.destination_id for each in some) + " ")


def test_a_destinations_page_shows_its_last_answer_and_nothing_of_it_acts() -> None:
    to = Destination("orders", "lake", "https://lake.example/in")
    answer = LastAnswer(AT_MS, "status_503", '<script src="//evil"></script> & no upstream')
    shown = overview(at_ms=AT_MS)
    orders = shown.streams[0]
    lake = replace(
        orders.destinations[1],
        last_refusal=answer,
        last_ok_at_ms=AT_MS - 1_000,
        lately=RecentOutcomes(delivered=3, failed=1_200),
        reason=f"503 since 11:44: {answer.text}",
        verdict=StreamVerdict.FAILING,
    )
    orders = replace(orders, destinations=(orders.destinations[0], lake))
    context = PageContext(
        replace(shown, streams=(orders,)), Configuration().apply(to.config_key, to.to_json())
    )
    page = destination_page(to.id, context, {}, may_change=True)
    assert page is not None
    said = "".join(region.content for region in page.regions)
    assert "<script" not in said
    assert "&lt;script src=" in said
    assert f"503 at {wording.moment(AT_MS)}" in said
    assert "3 delivered, 0 refused, 1,200 failed, 0 rate-limited" in said
    assert wording.moment(AT_MS - 1_000) in said
    other = destination_page("orders/billing", context, {}, may_change=True)
    assert other is not None
    assert "Last answers" not in "".join(region.content for region in other.regions)


def test_the_verdict_in_the_metrics_is_the_one_that_holds_now_and_no_other() -> None:
    metrics = ObserveMetrics()

    def shown(*destinations: tuple[str, StreamVerdict, str]) -> set[tuple[str, str, str]]:
        views = tuple(
            replace(destination_view("orders", name, at_ms=AT_MS), verdict=verdict, cause=cause)
            for name, verdict, cause in destinations
        )
        stream = StreamView("orders", StreamVerdict.OK, "", 0.0, None, views)
        metrics.show(Overview(AT_MS, (stream,), overview().audit))
        (family,) = [
            family for family in metrics.registry.collect() if family.name == "hifi_observe_verdict"
        ]
        assert all(sample.value == 1 for sample in family.samples)
        return {
            (label["destination"], label["verdict"], label["cause"])
            for label in (sample.labels for sample in family.samples)
        }

    failing = ("crm", StreamVerdict.FAILING, "status_503")
    assert shown(failing, ("shop", StreamVerdict.OK, "")) == {
        ("orders/crm", "FAILING", "status_503"),
        ("orders/shop", "OK", ""),
    }
    # One has another cause, the other is gone: no old figure is left that could raise an alert.
    assert shown(("crm", StreamVerdict.FAILING, "read_timeout")) == {
        ("orders/crm", "FAILING", "read_timeout")
    }
    samples = [sample for family in metrics.registry.collect() for sample in family.samples]
    assert {sample.labels.get("destination", "orders/crm") for sample in samples} == {"orders/crm"}
    assert {sample.name for sample in samples} >= {"hifi_observe_unaccounted_events"}


def test_the_operator_alone_reads_of_services_that_die_again_and_again() -> None:
    said = "Delivery was ended by SIGKILL, 5 times in ten minutes, and is started again in 10 s"
    context = PageContext(overview(at_ms=AT_MS), Configuration(), ailing=[said])
    assert said in overview_page(context.seen_by(ANYBODY), {}).regions[0].content
    tenants = context.seen_by(Viewer("k", frozenset({"read"}), "acme"))
    assert "started again" not in overview_page(tenants, {}).regions[0].content
