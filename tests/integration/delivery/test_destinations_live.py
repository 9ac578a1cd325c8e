"""A destination set over HTTP takes effect in running drivers: added, changed, paused, removed."""

import time
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from shared.config.signing import signing_secret
from tests.support.deploy.stack_fixtures import PATIENCE_S, RunningHifi, fetch, wait_until
from tests.support.servers.scripted_destination import ScriptedDestination, scripted_destination

pytestmark = pytest.mark.integration

STREAM = "live-settings"
PATH = f"/v1/streams/{STREAM}/destinations/shop"


def put(hifi: RunningHifi, url: str, **settings: Any) -> httpx.Response:
    answer = httpx.put(f"{hifi.gateway}{PATH}", json={"url": url, **settings}, timeout=30)
    assert answer.status_code in {200, 201}, answer.text
    return answer


def lane_is(hifi: RunningHifi, *, up: bool) -> None:
    metrics = f"http://127.0.0.1:{hifi.stack.settings.delivery_metrics_port}/metrics"
    line = f'hifi_delivery_lane_up{{destination="{STREAM}/shop"}}'

    def is_so() -> bool:
        says = fetch(metrics)
        return f"{line} 1.0" in says if up else bool(says) and line not in says

    wait_until(is_so, what=f"the lane is {'up' if up else 'gone'}")


def arrives(hifi: RunningHifi, destination: ScriptedDestination, event_id: str) -> None:
    assert hifi.post(STREAM, [{"id": event_id}]).status_code == 200
    came = destination.wait_for(lambda: event_id in destination.accepted_ids, timeout_s=PATIENCE_S)
    assert came, f"{event_id} did not arrive"


def goes_over_to(hifi: RunningHifi, destination: ScriptedDestination) -> None:
    """A change takes effect within 5 s; earlier events may go to the old address, or to both."""

    def has_come() -> bool:
        assert hifi.post(STREAM, [{"id": f"second-{time.monotonic_ns()}"}]).status_code == 200
        return destination.wait_for(lambda: bool(destination.accepted), timeout_s=0.5)

    wait_until(has_come, what="the change takes effect")


def test_settings_are_live_without_a_restart(hifi: RunningHifi) -> None:
    assert httpx.put(f"{hifi.gateway}/v1/streams/{STREAM}", json={}, timeout=30).status_code == 201
    secret = signing_secret(b"s" * 32)
    with scripted_destination() as one, scripted_destination() as other:
        auth = {"kind": "bearer", "token": "t0ken"}
        started_s = time.monotonic()
        answer = put(hifi, one.url, auth=auth, signing_secrets=[secret])
        assert "t0ken" not in answer.text
        lane_is(hifi, up=True)
        print(f"live after {time.monotonic() - started_s:.1f} s")  # noqa: T201 - a figure to read
        arrives(hifi, one, "first")
        (request,) = one.accepted
        # The worker has opened the secret that the gateway sealed.
        assert request.headers["authorization"] == "Bearer t0ken"
        assert Webhook(secret).verify(request.body, request.headers) == [{"id": "first"}]

        # Another address: the token does not follow by itself, but signing secrets may stay.
        moved = httpx.put(f"{hifi.gateway}{PATH}", json={"url": other.url}, timeout=30)
        assert (moved.status_code, moved.json()["code"]) == (409, "secret_changed")
        put(hifi, other.url, auth=auth)
        goes_over_to(hifi, other)
        assert other.accepted[0].headers["authorization"] == "Bearer t0ken"
        arrives(hifi, other, "later")
        assert "later" not in one.accepted_ids

        put(hifi, other.url, is_paused=True)
        lane_is(hifi, up=False)
        assert hifi.post(STREAM, [{"id": "third"}]).status_code == 200
        assert "third" not in other.accepted_ids
        put(hifi, other.url)
        assert other.wait_for(lambda: "third" in other.accepted_ids, timeout_s=PATIENCE_S)

        assert httpx.delete(f"{hifi.gateway}{PATH}", timeout=30).status_code == 204
        lane_is(hifi, up=False)
        assert hifi.post(STREAM, [{"id": "fourth"}]).status_code == 200
        assert "fourth" not in one.accepted_ids + other.accepted_ids
