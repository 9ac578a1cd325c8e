"""The pages of tenants: who sees which page, and its texts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx

from shared.config.access import Scope, Tenant
from shared.config.outside.channel import Channel
from shared.proof.overview import StreamVerdict
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.component.console.pages.test_console_pipelines import set_up
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    overview,
    running_console,
)


def show(console: RunningConsole) -> None:
    """Show an overview in which the tenant studio is in a worse state than the default one."""
    shown = overview()
    streams = [
        replace(
            stream,
            verdict=StreamVerdict.LOSING,
            events_per_s=12.5,
            destinations=tuple(
                replace(view, verdict=StreamVerdict.LOSING, reason="it loses")
                for view in stream.destinations
            ),
        )
        if stream.name == "players"
        else stream
        for stream in shown.streams
    ]
    console.show(replace(shown, streams=tuple(streams)))
    quotas = Tenant("studio", events_per_s=100.0, streams_max=7, channels_max=3)
    channel = Channel("ops", "webhook", tenant="studio", url="https://studio.example/")
    for each in (quotas, channel):
        before = console.config.configuration
        console.config.configuration = before.apply(each.config_key, each.to_json())


@contextmanager
def signed_in(tenant: str, *scopes: Scope, streams: tuple[str, ...] = ()) -> Iterator[httpx.Client]:
    with running_console("keys") as running:
        key, text = make_key("who", *scopes, tenant=tenant, streams=streams)
        configure(running, key, make_key("other", "write", tenant="studio")[0])
        show(running)
        with httpx.Client(base_url=running.url) as client:
            sign_in(client, text)
            yield client


def test_an_operator_sees_all_tenants_the_worst_first() -> None:
    with signed_in("default", "admin") as client:
        page = client.get("/tenants").text
        assert page.index('href="/tenants/studio"') < page.index('href="/tenants/default"')
        assert "2 tenants." in page
        assert "100 events/s" in page
        one = client.get("/tenants/studio").text
        assert "LOSING" in one
        assert "1 of 7 at most" in one
        assert "1 of 3 at most" in one
        assert "12.5" in one
        assert "players/stats: it loses" in one
        assert 'href="/keys?tenant=studio"' in one
        assert 'href="/changes?tenant=studio"' in one
        # An operator may not open pages of other tenants' streams.
        assert 'href="/streams/players' not in one
        assert 'href="/streams/orders"' in client.get("/tenants/default").text
        keys = client.get("/keys?tenant=studio").text
        assert "<code>other</code>" in keys
        assert "<code>who</code>" not in keys
        assert "Keys of the tenant nobody: " in client.get("/keys?tenant=nobody").text
        assert "No tenant matches." in client.get("/tenants?q=nobody").text
        assert client.get("/tenants/nobody").status_code == 404


def test_a_tenant_sees_itself_alone() -> None:
    with signed_in("studio", "admin") as client:
        page = client.get("/tenants").text
        assert "1 tenant." in page
        assert "default" not in page
        assert 'href="/streams/players"' in client.get("/tenants/studio").text
        assert client.get("/tenants/default").status_code == 404


def test_who_only_reads_in_the_default_tenant_is_no_operator() -> None:
    with signed_in("default", "read") as client:
        page = client.get("/tenants").text
        assert "studio" not in page
        assert client.get("/tenants/studio").status_code == 404


def test_a_key_for_some_streams_counts_those_alone() -> None:
    with signed_in("default", "admin", streams=("elsewhere",)) as client:
        assert client.get("/tenants/studio").status_code == 404
        page = client.get("/tenants/default").text
        assert "orders" not in page
        assert "Nothing is known yet about any stream of this tenant." in page


def test_a_pipeline_is_called_as_it_was_named_and_leads_to_its_page(
    console: RunningConsole, client: httpx.Client
) -> None:
    set_up(console)
    listed = client.get("/tenants").text
    assert "pipeline broken: " in listed
    page = client.get("/tenants/default").text
    assert '<a href="/pipelines/broken">pipeline broken</a>' in page
    assert "pipeline:broken" not in page.replace("destination=pipeline:broken", "")


def test_of_ten_thousand_tenants_so_many_are_shown_at_a_time(
    console: RunningConsole, client: httpx.Client
) -> None:
    known = console.config.configuration
    many = {f"tenant-{number}": Tenant(f"tenant-{number}") for number in range(10_000)}
    console.config.configuration = replace(known, tenants=many)
    page = client.get("/tenants?q=tenant-").text
    assert "10,000 tenants match; 1 to 100 are shown" in page
    assert page.count("<tr>") == 101
    assert "10,000 tenants match; 9,901 to 10,000 are shown" in (
        client.get("/tenants?q=tenant-&page=100").text
    )
