"""The pure parts of the console: markup, wording, headline, shares, sessions, steps."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from console.page_context import PageContext
from console.pages.destinations.destination_pages import destination_page
from console.pages.overview_page import headline, overview_page
from console.parts import axes
from console.parts.loss_pieces import heat_level
from console.parts.markup import Attribute, fragment, tag
from console.viewers import ANYBODY, Cookies, Session, Viewer
from observe.lag.time_shares import time_shares
from shared import wording
from shared.config.configuration import Configuration, RemovedStream, Stream
from shared.config.destination import Destination
from shared.config.pipeline import Pipeline
from shared.flow.flow import Flow, FlowState
from shared.flow.flow_record import FlowRecord
from shared.proof.balance import Balance
from shared.proof.overview import (
    MinuteState,
    PipelineView,
    RemovedView,
    Stage,
    StageLag,
    StreamVerdict,
    UnknownView,
)
from shared.runtime.hosts import HOSTS_REMEMBERED, is_ours, may_post
from tests.support.console.console_fixtures import (
    destination_view,
    minutes,
    overview,
    quantiles,
)

AT_MS = 1_790_000_000_000


def test_what_waits_for_nobody_that_is_known_is_shown_to_the_streams_owner() -> None:
    ours, theirs = UnknownView("orders", "newer", 1_007), UnknownView("theirs", "newer", 3)
    configuration = Configuration(
        streams={
            "orders": Stream("orders", tenant="acme"),
            "theirs": Stream("theirs", tenant="bravo"),
        }
    )
    shown = replace(overview(at_ms=AT_MS), unknown=(ours, theirs))
    context = PageContext(shown, configuration)
    seen = context.seen_by(Viewer("k", frozenset({"read"}), "acme"))
    assert seen.overview.unknown == (ours,)
    (region,) = [one for one in overview_page(seen, {}).regions if one.id == "unknown"]
    assert "orders → newer" in region.content
    assert "1,007" in region.content
    assert context.seen_by(ANYBODY).overview.unknown == (ours, theirs)
    assert (
        overview_page(PageContext(overview(at_ms=AT_MS), configuration), {}).regions[3].content
        == ""
    )


def test_a_pipeline_is_seen_by_who_sees_all_of_its_streams() -> None:
    def pipeline(name: str, reads: str, writes: str) -> Pipeline:
        fields = {"name": name, "from": {"stream": reads}, "to": [{"stream": writes}]}
        return Pipeline.of(fields)

    pipelines = [pipeline("ours", "orders", "eu"), pipeline("theirs", "bravo-in", "bravo-out")]
    configuration = Configuration(
        streams={
            **{name: Stream(name, tenant="acme") for name in ("orders", "eu")},
            **{name: Stream(name, tenant="bravo") for name in ("bravo-in", "bravo-out")},
        },
        pipelines={each.name: each for each in pipelines},
    )
    views = tuple(PipelineView(each.source.stream, each.name, Balance()) for each in pipelines)
    context = PageContext(replace(overview(at_ms=AT_MS), pipelines=views), configuration)

    def seen_with(**key: Any) -> list[str]:
        seen = context.seen_by(Viewer("k", frozenset({"read"}), **key))
        return [view.name for view in seen.overview.pipelines]

    assert seen_with(tenant="acme") == ["ours"]
    assert seen_with(tenant="acme", streams=frozenset({"orders", "eu"})) == ["ours"]
    assert seen_with(tenant="acme", streams=frozenset({"orders"})) == []
    assert seen_with(tenant="bravo") == ["theirs"]
    assert seen_with() == ["ours", "theirs"]


def test_what_was_removed_is_shown_to_its_owner_with_its_books() -> None:
    removed = (
        RemovedView("gone", "crm", AT_MS, Balance(acked=1_007, delivered=1_003, dead=4)),
        RemovedView("theirs", "shop", AT_MS, Balance(acked=5, delivered=5)),
    )
    configuration = Configuration(
        streams={"orders": Stream("orders", tenant="acme")},
        removed_streams={
            "gone": RemovedStream("gone", "acme", 4, AT_MS),
            "theirs": RemovedStream("theirs", "bravo", 4, AT_MS),
        },
    )
    context = PageContext(replace(overview(at_ms=AT_MS), removed=removed), configuration)
    reader = frozenset({"read"})
    seen = context.seen_by(Viewer("k", reader, "acme"))
    assert seen.overview.removed == removed[:1]
    (region,) = [one for one in overview_page(seen, {}).regions if one.id == "removed"]
    assert "gone → crm" in region.content
    assert "1,003" in region.content
    assert context.seen_by(ANYBODY).overview.removed == removed
    assert (
        overview_page(PageContext(overview(at_ms=AT_MS), configuration), {}).regions[2].content
        == ""
    )
    # The totals on the first screen do not fall when a stream is removed.
    ours = replace(seen.overview, streams=())
    assert ours.removed_acked == 1_007


def test_markup_escapes_what_it_is_given_and_nothing_twice() -> None:
    inner = tag("b", "<&>", class_="x")
    assert inner == '<b class="x">&lt;&amp;&gt;</b>'
    assert tag("p", inner, [" and ", 7, None]) == f"<p>{inner} and 7</p>"
    assert fragment("'\"") == "&#x27;&quot;"
    assert tag("input", name="q", value='"><x', required=True, hidden=False) == (
        '<input name="q" value="&quot;&gt;&lt;x" required>'
    )


@pytest.mark.parametrize("path", ["javascript:x", "//evil.example", "https://x", "x", ""])
def test_a_link_leads_to_our_own_paths_only(path: str) -> None:
    for name in ("href", "src", "action"):
        attributes: dict[str, Attribute] = {name: path}
        with pytest.raises(AssertionError):
            tag("a", "x", **attributes)


def test_what_is_invisible_is_shown() -> None:
    assert fragment("a\x00b\x1bc\u202ed\n") == "a\u2400b\u241bc\\u202ed\n"


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (None, "\u2013"), (0, "0 ms"), (0.0426, "43 ms"), (0.9996, "1.0 s"), (9.94, "9.9 s"),
        (9.96, "10 s"), (59.7, "1 min"), (100, "1 min 40 s"), (3_600, "1 h"), (11_100, "3 h 5 min"),
        (187_200, "2 d 4 h"), (-0.25, "-250 ms"),
    ],
)  # fmt: skip
def test_durations_have_two_figures(seconds: float | None, says: str) -> None:
    assert wording.duration(seconds) == says


@pytest.mark.parametrize(
    ("size_bytes", "says"),
    [(None, "\u2013"), (0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (20_480, "20.5 kB"),
     (120_000, "120 kB"), (999_600, "1.0 MB"), (5 * 10**15, "5000 TB")],
)  # fmt: skip
def test_sizes_have_three_figures(size_bytes: int | None, says: str) -> None:
    assert wording.size(size_bytes) == says


def test_times_that_no_calendar_has_are_shown_as_numbers() -> None:
    assert wording.moment(AT_MS + 7) == "2026-09-21 14:13:20.007Z"
    assert wording.moment(10**30) == f"{10**30} ms"


def test_the_headline_says_the_worst_first() -> None:
    assert headline(overview(at_ms=AT_MS)) == (
        "orders/lake is slow: p95 is 4.1 s, over 2 s for 3 minutes."
    )
    assert headline(overview(at_ms=AT_MS, unaccounted=1)) == (
        "1 event is unaccounted for in orders/billing."
    )
    fine = overview(at_ms=AT_MS)
    calm = replace(fine, streams=fine.streams[1:])
    assert headline(calm) == "All 10,004 acknowledged events are accounted for."
    assert headline(replace(calm, streams=())) == "No stream yet."
    assert headline(replace(calm, streams=(), problem="kafka is away")) == "Kafka is away."
    both = [replace(one, verdict=StreamVerdict.STALLED) for one in fine.streams[0].destinations]
    stream = replace(fine.streams[0], verdict=StreamVerdict.STALLED, destinations=tuple(both))
    stalled = replace(fine, streams=(stream,))
    assert headline(stalled) == "orders/billing and orders/lake are stalled."


def test_shares_of_time_add_up_to_the_mean_of_the_whole() -> None:
    one = destination_view("orders", "billing", at_ms=AT_MS)
    # A tenth of the events went through the retrier, and waited before that.
    met = replace(quantiles(40), count=50)
    retried = replace(
        one,
        stages=(*one.stages, StageLag(Stage.RETRIER, process=met), StageLag(Stage.DEAD_LETTERS)),
        since_accepted=quantiles(400),
    )
    shares = dict(time_shares(retried))
    assert list(shares) == ["gateway", "queue", "delivery", "retry tier", "retrier"]
    assert shares["retrier"] == 4
    assert sum(shares.values()) == pytest.approx(400)
    assert time_shares(replace(one, since_accepted=None)) == ()


@pytest.mark.parametrize("mean_ms", [0, 1, 30, 90, 5_000])
def test_shares_add_up_also_when_the_nodes_have_looked_at_other_events(mean_ms: float) -> None:
    one = destination_view("orders", "billing", at_ms=AT_MS)
    for stages in (one.stages, (), one.stages[:1]):
        shares = dict(time_shares(replace(one, stages=stages, since_accepted=quantiles(mean_ms))))
        assert sum(shares.values()) == pytest.approx(mean_ms)
        assert min(shares.values()) >= 0


def test_what_is_not_known_is_never_green() -> None:
    levels = dict.fromkeys(MinuteState)
    for books in minutes("orders", "orders/billing", at_ms=AT_MS, lost=3):
        levels[books.state] = heat_level(books)
    assert levels == {
        MinuteState.UNCHECKED: "unchecked",
        MinuteState.CHECKED: "checked",
        MinuteState.CANNOT_TELL: "blind",
        MinuteState.LOSS: "much",
    }
    few = replace(minutes("o", "o/b", at_ms=AT_MS)[0], acked=1_000, lost={Stage.QUEUE: 1})
    assert heat_level(few) == "some"
    assert heat_level(None) == "empty"


def test_a_context_holds_what_its_viewer_may_see() -> None:
    configuration = Configuration()
    for stream in (Stream("orders"), Stream("players", tenant="studio")):
        configuration = configuration.apply(stream.config_key, stream.to_json())
    context = PageContext(overview(at_ms=AT_MS), configuration)

    def names(viewer: Viewer) -> list[str]:
        return [stream.name for stream in context.seen_by(viewer).overview.streams]

    reader = frozenset({"read"})
    assert names(ANYBODY) == ["orders", "players"]
    assert names(Viewer("k", reader, "studio")) == ["players"]
    assert names(Viewer("k", reader, "default", frozenset({"other"}))) == []
    assert (
        PageContext(overview(), Configuration())
        .seen_by(Viewer("k", reader, "x"))
        .overview.destinations
        == []
    )


def test_cookies_are_sealed_run_out_and_carry_their_own_token() -> None:
    cookies, others = Cookies(b"one"), Cookies(b"two")
    session = Session("nonce", AT_MS + 10, "hifisk_ops_abcd")
    cookie = cookies.write(session)
    # Neither the cookie nor a log shows the key.
    assert "hifisk" not in cookie + base64.urlsafe_b64decode(cookie.rpartition(":")[2]).decode(
        errors="replace"
    )
    assert "hifisk" not in repr(session)
    assert cookies.read(cookie, now_ms=AT_MS) == session
    assert cookies.read(cookie, now_ms=AT_MS + 10) is None
    assert others.read(cookie, now_ms=AT_MS) is None
    assert cookies.is_csrf(session, cookies.csrf(session))
    assert not cookies.is_csrf(Session("other", AT_MS), cookies.csrf(session))
    assert not cookies.is_csrf(session, cookie)


@pytest.mark.parametrize(
    ("host", "is_right"),
    [
        ("127.0.0.1:8088", True), ("localhost", True), ("LOCALHOST:1", True), ("[::1]:8088", True),
        ("hifi.example:443", True), ("evil.example", False), ("127.0.0.1.evil.example", False),
        ("", False), ("hifi.example.evil", False), ("evil.localhost.example", False),
        ("10.0.0.7:8088", True), ("[fd00::2]:1", True), ("gateway", True), ("a.localhost", True),
    ],
)  # fmt: skip
def test_only_our_own_names_are_answered(host: str, is_right: bool) -> None:  # noqa: FBT001
    assert is_ours(host, frozenset({"hifi.example"})) is is_right


def test_few_names_are_remembered_whoever_makes_them_up() -> None:
    for number in range(100):
        assert is_ours(f"10.0.0.{number}", frozenset())
    assert is_ours.cache_info().currsize <= HOSTS_REMEMBERED


def test_posts_come_from_our_own_pages() -> None:
    ours = {"host": "127.0.0.1:8088", "fetch_site": "same-origin"}
    assert may_post(**ours, origin="http://127.0.0.1:8088")
    assert may_post(host="127.0.0.1:8088", fetch_site=None, origin=None)
    assert not may_post(**ours, origin="http://127.0.0.1:9999")
    assert not may_post(**ours, origin="null")
    assert not may_post(host="h", fetch_site="cross-site", origin=None)


@pytest.mark.parametrize(
    ("failed_for_s", "state", "is_said"),
    [
        (None, FlowState.CLOSED, False),
        (49, FlowState.OPEN, False),
        (50, FlowState.OPEN, True),
        (500, FlowState.DISABLED, False),
    ],
)
def test_a_destination_that_will_be_given_up_says_so_in_time(
    failed_for_s: int | None,
    state: FlowState,
    is_said: bool,  # noqa: FBT001 - a row of the table
) -> None:
    to = Destination("orders", "lake", "https://lake.example/in", disable_after_s=100)
    since_ms = 0 if failed_for_s is None else AT_MS - 1_000 * failed_for_s
    context = PageContext(
        overview(at_ms=AT_MS),
        Configuration().apply(to.config_key, to.to_json()),
        {to.id: FlowRecord(Flow(failing_since_ms=since_ms), state=state, since_ms=AT_MS)},
    )
    page = destination_page(to.id, context, {}, may_change=True)
    assert page is not None
    said = "".join(region.content for region in page.regions)
    assert ("without success, Hifi gives it up at" in said) is is_said
    if is_said:
        assert wording.moment(AT_MS + 50_000) in said


@pytest.mark.parametrize(
    ("highest_s", "written"),
    [
        (0.3, "0 ms, 100 ms, 200 ms, 300 ms, 400 ms"),
        (7, "0 ms, 2.0 s, 4.0 s, 6.0 s, 8.0 s"),
        (45, "0 ms, 15 s, 30 s, 45 s, 1 min"),
        (110, "0 ms, 30 s, 1 min, 1 min 30 s, 2 min"),
        (900, "0 ms, 5 min, 10 min, 15 min, 20 min"),
        (90_000, "0 ms, 12 h, 1 d, 1 d 12 h, 2 d"),
    ],
)
def test_an_axis_of_time_has_steps_that_people_count_in(highest_s: float, written: str) -> None:
    ticks = axes.ticks(highest_s, axes.SECONDS)
    assert ", ".join(axes.SECONDS.write(each) for each in ticks) == written
