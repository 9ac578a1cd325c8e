"""A proxy's password is sealed, never shown, and stays with the proxy that it was given for."""

import json
from typing import Any

import pytest

from gateway.control.sealing import anew, sealed_fields, secrets_in, shown
from gateway.problems import Problem
from shared.config.credentials import Proxy, secrets_of
from shared.config.destination import Destination
from shared.config.model import ConfigError
from shared.runtime.secret_box import SecretBox, new_key

OWNER = "orders/shop"
BOX = SecretBox([new_key()])
URL = "http://proxy.example:3128"
OPEN = {"url": URL, "username": "hifi"}
LOCKED = OPEN | {"password": "hunter2"}
BEARER = {"kind": "bearer", "token": "t0ken"}


def put(before: Destination | None = None, **given: Any) -> Destination:
    """Return the destination that a PUT would store."""
    fields = {"stream": "orders", "name": "shop", "url": "https://shop.example/in"} | given
    return Destination.of(sealed_fields(fields, before=before, owner=OWNER, box=BOX))


def opened(to: Destination) -> dict[str, str]:
    """Return the secrets that delivery would use."""
    secrets = secrets_of(to.to_fields())
    return {path: BOX.unseal(sealed, owner=OWNER) for path, sealed in secrets}


def test_a_password_is_stored_sealed_and_shown_as_a_placeholder() -> None:
    to = put(proxy=LOCKED)
    assert opened(to) == {"proxy.password": "hunter2"}
    assert b"hunter2" not in to.to_json()
    seen = shown(to)["proxy"]
    assert {name: seen[name] for name in OPEN} == OPEN
    assert set(seen["password"]) == {"sealed"}
    assert "sealed:v1:" not in json.dumps(shown(to))
    assert put(to, proxy=seen) == to
    # A password that is sent again is not sealed again.
    assert put(to, proxy=LOCKED) == to


def test_an_omitted_password_stays_and_null_removes_it() -> None:
    to = put(proxy=LOCKED)
    assert put(to) == to
    assert put(to, proxy=OPEN) == to
    other = put(to, proxy={"url": URL, "username": "me"})
    assert other.proxy is not None
    assert (other.proxy.username, opened(other)) == ("me", {"proxy.password": "hunter2"})
    assert put(to, proxy=OPEN | {"password": None}).proxy == Proxy(URL, "hifi")
    assert put(to, proxy=None).proxy is None


def test_a_proxy_without_a_password_has_no_secret() -> None:
    to = put(proxy=OPEN)
    assert shown(to)["proxy"] == OPEN | {"password": None}
    assert (secrets_in(to), opened(to)) == ([], {})
    assert put(to, timeout_s=3.0).proxy == to.proxy
    assert put(to, proxy=shown(to)["proxy"]) == to
    assert anew(to, SecretBox([new_key()])) == to


def test_a_password_may_be_empty_and_must_be_a_text() -> None:
    assert opened(put(proxy=OPEN | {"password": ""})) == {"proxy.password": ""}
    for wrong in (5, "x" * 32_769, {"sealed": 5, "x": 1}):
        with pytest.raises(ConfigError) as caught:
            put(proxy=OPEN | {"password": wrong})
        assert caught.value.setting == "proxy.password"


@pytest.mark.parametrize(
    "url", ["http://other.example:3128", "https://proxy.example:3128", "http://proxy.example:8080"]
)
def test_a_password_does_not_follow_to_another_proxy(url: str) -> None:
    to = put(proxy=LOCKED)
    for moved in (OPEN | {"url": url}, shown(to)["proxy"] | {"url": url}):
        with pytest.raises(Problem) as caught:
            put(to, proxy=moved)
        assert (caught.value.code, caught.value.pointer) == ("secret_changed", "/proxy/password")
    assert opened(put(to, proxy=LOCKED | {"url": url})) == {"proxy.password": "hunter2"}
    assert opened(put(to, proxy={"url": url, "password": None})) == {}
    # The same proxy, spelt in another way, keeps it.
    assert opened(put(to, proxy=OPEN | {"url": "http://PROXY.example:3128/"})) == opened(to)


def test_a_placeholder_of_another_secret_is_no_password() -> None:
    to = put(proxy=LOCKED, auth=BEARER)
    with pytest.raises(Problem) as caught:
        put(to, proxy=OPEN | {"password": shown(to)["auth"]["token"]})
    assert (caught.value.code, caught.value.pointer) == ("secret_changed", "/proxy/password")


def test_the_destinations_own_secrets_stay_when_a_proxy_comes_changes_or_goes() -> None:
    """They travel in the tunnel, where no proxy can read them."""
    own = {"auth.token": "t0ken", "secret_headers.x-key": "k"}
    direct = put(auth=BEARER, secret_headers={"x-key": "k"})
    behind = put(direct, proxy=LOCKED)
    assert opened(behind) == own | {"proxy.password": "hunter2"}
    other = {"url": "http://other.example:3128", "username": "me", "password": "hunter3"}
    assert opened(put(behind, proxy=other)) == own | {"proxy.password": "hunter3"}
    assert opened(put(behind, proxy=None)) == own


def test_a_proxys_password_stays_when_the_destination_moves() -> None:
    to = put(proxy=LOCKED, auth=BEARER)
    elsewhere = {"url": "https://other.example/in"}
    moved = put(to, **elsewhere, auth=BEARER)
    assert opened(moved) == {"auth.token": "t0ken", "proxy.password": "hunter2"}
    with pytest.raises(Problem) as caught:
        put(to, **elsewhere)
    assert (caught.value.code, caught.value.pointer) == ("secret_changed", "/auth/token")
