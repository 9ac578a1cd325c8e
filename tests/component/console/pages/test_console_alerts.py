"""One page shows all current alerts; each links to its runbook, which is a page of the console."""

import re
from dataclasses import replace

import httpx
import pytest

from console.pages import alerts_page
from console.parts import runbooks
from deploy.alerts.rules import ALERTS
from shared.event.spread import SpreadView
from shared.proof.overview import SEVERITY, Overview, StreamVerdict, UnknownView
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    every_verdict,
    overview,
)


def of_each_verdict() -> Overview:
    shown = every_verdict()
    (stream,) = shown.streams
    views = [replace(each, destination_id=f"orders/{each.name}") for each in stream.destinations]
    return replace(shown, streams=(replace(stream, destinations=tuple(views)),))


def test_each_verdict_leads_to_a_runbook_that_is_there() -> None:
    fine = {StreamVerdict.OK, StreamVerdict.PAUSED}
    assert set(runbooks.OF_VERDICT) == set(SEVERITY) - fine
    names = {*runbooks.OF_VERDICT.values(), *runbooks.OF_PIPELINE.values()}
    assert names <= {alert.name for alert in ALERTS}
    assert {alert.name for alert in ALERTS} == set(runbooks.runbooks()) - {runbooks.INDEX}


def test_what_is_the_matter_stands_first_with_its_runbook(
    console: RunningConsole, client: httpx.Client
) -> None:
    console.show(of_each_verdict())
    page = client.get("/alerts").text
    worst_first = [each for each in reversed(SEVERITY) if each in runbooks.OF_VERDICT]
    assert f"{len(worst_first)} things to look at." in page
    found = re.findall(r'<tr><th scope="row"><a href="/streams/orders/(\w+)">', page)
    assert found == [verdict.name.lower() for verdict in worst_first]
    for name in runbooks.OF_VERDICT.values():
        assert f'href="/runbooks/{name}"' in page
    # The page of a destination links to its runbook, too.
    assert 'href="/runbooks/HifiDestinationFailing"' in client.get("/streams/orders/failing").text
    assert "/runbooks/" not in client.get("/streams/orders/ok").text


def test_what_is_the_matter_with_hifi_itself_stands_there_too(
    console: RunningConsole, client: httpx.Client
) -> None:
    well = overview()
    streams = tuple(
        replace(stream, destinations=(), spread=SpreadView(3, 0.5, 4.0, is_hot=True, keys=()))
        for stream in well.streams[:1]
    )
    audit = replace(well.audit, problem="Kafka is away", unreadable_count=2)
    lost = UnknownView("orders", "nobody", 7)
    console.show(replace(well, streams=streams, audit=audit, unknown=(lost,)))
    page = client.get("/alerts").text
    for name in ("HifiAuditBehind", "HifiUnreadableRecords", "HifiUnknownDestination",
                 "HifiHotPartition"):  # fmt: skip
        assert f'href="/runbooks/{name}"' in page
    console.show(replace(well, streams=()))
    assert "No alerts." in client.get("/alerts").text


def test_a_tenant_reads_of_its_own_only(locked_console: RunningConsole) -> None:
    key, text = make_key("studio", "read", tenant="studio")
    configure(locked_console, key)
    with httpx.Client(base_url=locked_console.url) as visitor:
        for path in ("/alerts", "/runbooks", "/runbooks/HifiLoss"):
            assert visitor.get(path).status_code == 303, path
        sign_in(visitor, text)
        page = visitor.get("/alerts").text
        assert "orders" not in page
        assert "No alerts." in page


@pytest.mark.parametrize("name", sorted(runbooks.runbooks()))
def test_a_runbook_is_shown_as_it_is_meant(client: httpx.Client, name: str) -> None:
    path = runbooks.PATH if name == runbooks.INDEX else f"{runbooks.PATH}/{name}"
    page = client.get(path).text
    article = page.partition('<article class="runbook">')[2].partition("</article>")[0]
    assert article.count("<h1>") == 1
    said = re.sub(r"<code>.*?</code>", "", article)
    assert re.search(r"\]\(|\*\*|\n#|\||`", said) is None
    for link in re.findall(r'href="(/runbooks/[^"]*)"', article):
        assert client.get(link).status_code == 200, link


def test_no_other_file_is_a_runbook(
    console: RunningConsole, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("../README", "%2e%2e%2fREADME", "HifiNothing", "README.md"):
        assert client.get(f"/runbooks/{name}").status_code == 404, name
    # There are no runbooks where only the packages are installed.
    for module in (runbooks, alerts_page):
        monkeypatch.setattr(module, "runbooks", dict)
    console.show(every_verdict())
    assert "<code>docs/runbooks/HifiLoss.md</code>" in client.get("/alerts").text
    assert client.get("/runbooks/HifiLoss").status_code == 404
