"""A proxy and HTTP/2 are refused by name where they cannot work: they need TLS to the end."""

from typing import Any

import pytest

from shared.config.credentials import Proxy
from shared.config.destination import Destination
from shared.config.model import ConfigError

PROXY = "http://proxy.example:3128"
SHOP = {"stream": "orders", "name": "shop", "url": "https://shop.example/in"}
OAUTH = {"kind": "oauth2", "client_id": "me", "client_secret": "sealed:v1:gAAAAA"}
NO_ADDRESS = "proxy.url: it has only scheme, host and port"

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"url": "http://shop.example/", "http2": True}, "http2: it needs an https url"),
    ({"url": "HTTP://shop.example/", "http2": True}, "http2: it needs an https url"),
    ({"http2": 1}, "http2: 1 should be a valid boolean"),
    ({"url": "http://a/", "proxy": {"url": PROXY}}, "proxy: it needs an https url: "),
    ({"url": "HTTP://a/", "proxy": {"url": PROXY}}, "proxy: it needs an https url: "),
    *[
        (
            {"auth": {**OAUTH, "token_url": f"{scheme}://id.example/"}, "proxy": {"url": PROXY}},
            "proxy: it needs an https auth.token_url: ",
        )
        for scheme in ("http", "HTTP")
    ],
    ({"proxy": PROXY}, "proxy: it should be an object"),
    ({"proxy": {"username": "me"}}, "proxy.url: it is missing"),
    ({"proxy": {"url": "proxy.example:3128"}}, "proxy.url: 'proxy.example:3128' is not an http"),
    ({"proxy": {"url": "socks5://proxy.example"}}, "proxy.url: 'socks5://proxy.example' is not an"),
    ({"proxy": {"url": "http://me:hunter2@proxy.example"}}, NO_ADDRESS),
    ({"proxy": {"url": f"{PROXY}/path"}}, NO_ADDRESS),
    ({"proxy": {"url": f"{PROXY}?a=b"}}, NO_ADDRESS),
    ({"proxy": {"url": f"{PROXY}#a"}}, NO_ADDRESS),
    ({"proxy": {"url": PROXY, "username": "a:b"}}, "proxy.username: it cannot contain a colon"),
    ({"proxy": {"url": PROXY, "password": "hunter2"}}, "proxy.password: a secret must be sealed"),
    ({"proxy": {"url": PROXY, "password": ["hunter2"]}}, "proxy.password: it should be a valid"),
    ({"proxy": {"url": PROXY, "password": "sealed:v1:gAAAAA"}}, "proxy.username: it is missing"),
]


@pytest.mark.parametrize(("changed", "text"), REFUSED, ids=str)
def test_a_setting_that_cannot_work_is_refused_by_name(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Destination.of(SHOP | changed)
    assert str(caught.value).startswith(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", [PROXY, "http://[::1]:3128/", "https://proxy.example", "HTTP://P"])
def test_a_proxy_needs_only_an_address(url: str) -> None:
    read = Destination.of(SHOP | {"proxy": {"url": url}, "http2": True})
    assert (read.proxy, read.http2) == (Proxy(url, username="", password=None), True)


def test_an_oauth2_destination_may_have_both_if_tokens_come_over_tls() -> None:
    auth = OAUTH | {"token_url": "https://id.example/token"}
    read = Destination.of(SHOP | {"auth": auth, "proxy": {"url": PROXY}, "http2": True})
    assert read.proxy == Proxy(PROXY)


def test_a_destination_without_tls_needs_neither() -> None:
    read = Destination.of(SHOP | {"url": "http://shop.example/in", "http2": False, "proxy": None})
    assert (read.proxy, read.http2) == (None, False)
