"""Every route for every kind of key, compared with the table in docs/api.md.

A refused request changes nothing, and no list shows objects that are not the caller's.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app import described
from gateway.routes import request_ids
from gateway.settings import Settings
from shared.config.access import ENTROPY_BYTES, new_text
from shared.config.configuration import Configuration
from shared.event.topics import stream_topic
from shared.event.trial import TrialAnswer
from shared.retry.replay import Replays
from shared.runtime.channels.settings import ChannelSettings
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.fake_replays import replays_of
from tests.support.gateway.gateway_fixtures import (
    FakeDeadLetters,
    FakeReceipts,
    FixedConfig,
    RunningGateway,
    a_dead_letter,
    a_ledger_row,
    running_gateway,
)
from tests.support.gateway.trial_answers import observer, trier

OPERATOR = new_text(kind="secret", key_id="operator", entropy=b"o" * ENTROPY_BYTES)
REQUEST_ID = next(request_ids())
ORIGIN = "https://shop.example"
PAGE = Path(__file__).parents[4] / "docs" / "api.md"
SINCE: dict[str, Any] = {"from": "2026-11-24T10:00:00Z"}
# The names in the paths of the table; all of them belong to the tenant shop.
NAMES = {
    "stream": "orders",
    "destination": "billing",
    "pipeline": "totals",
    "table": "prices",
    "key": "least",
    "channel": "pager",
    "tenant": "shop",
    "request_id": REQUEST_ID,
    # A row of a table.
    "row": "4711",
}
DOCUMENT = {
    "from": {"stream": "orders"},
    "schema": "n INT",
    "steps": [{"window": {"every": "1 minute", "by": ["n"], "compute": {"many": "count(*)"}}}],
    "to": [{"stream": "sums"}],
}
BODIES: dict[str, Any] = {
    "/v1/streams/{stream}/destinations/{destination}": {"url": "http://1.1.1.1/in"},
    "/v1/pipelines/{pipeline}": DOCUMENT,
    "/v1/pipelines/{pipeline}/replacement": DOCUMENT,
    "/v1/channels/{channel}": {"via": "webhook", "url": "https://127.0.0.1:9/in"},
    "/v1/keys/{key}": {"scopes": ["read"], "streams": ["orders"]},
    "/v1/links": {"streams": ["orders"]},
    "/v1/streams/{stream}/events": [{}],
    "/v1/streams/{stream}/beacon": [{}],
    "/v1/tables/{table}/rows/{key}": {"price": 1},
}
# The caller lacks a right, or does not see the object.
REFUSED = {401, 403, 404}


@dataclass(frozen=True)
class Rule:
    """A row of the table."""

    scope: str
    narrow: str

    @property
    def scopes(self) -> set[str]:
        """Return the scopes, one of which is enough."""
        word = self.scope.partition(",")[0]
        return {"read", "write", "admin"} if word == "any" else set(word.split(" or "))

    @property
    def is_open(self) -> bool:
        return self.scope == "nobody is asked for a key"

    @property
    def is_list(self) -> bool:
        """Whether all callers get an answer, limited to their own objects."""
        return self.narrow.startswith("sees ")


@dataclass(frozen=True)
class Who:
    """A kind of caller."""

    name: str
    scopes: frozenset[str]
    # The streams that the key is limited to; none means all.
    streams: frozenset[str] = frozenset()
    tenant: str = "shop"
    is_browser: bool = False
    is_link: bool = False


BROAD = [Who(scope, frozenset({scope})) for scope in ("read", "write", "admin")]
NARROW = [
    Who(f"{scope}-of-{'-'.join(sorted(streams))}", frozenset({scope}), frozenset(streams))
    for scope, streams in product(("read", "write", "admin"), ({"orders", "sums"}, {"hits"}))
]
OTHERS = [
    Who("bank", frozenset({"read", "write", "admin"}), tenant="bank"),
    Who("browser", frozenset({"write"}), is_browser=True),
    Who("link", frozenset({"read"}), is_link=True),
    Who("link-of-hits", frozenset({"read"}), frozenset({"hits"}), is_link=True),
]
EVERYBODY = [*BROAD, *NARROW, *OTHERS]


def rules() -> dict[tuple[str, str], Rule]:
    """Return the rows of the table in the docs, by method and path."""
    section = PAGE.read_text().split("### Rights of each key", 1)[1].split("###", 1)[0]
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| `"):
            continue
        paths, methods = (re.findall(r"`([^`]+)`", cell) for cell in cells[:2])
        for path, method in product(paths, methods):
            assert (method, path) not in found, f"{method} {path} is in it twice"
            found[method, path] = Rule(cells[2].partition(";")[0], cells[3].partition(":")[0])
    return found


RULES = rules()


def test_the_table_has_every_route_and_no_other() -> None:
    paths = described(Settings())["paths"]
    there = {(method.upper(), path) for path, found in paths.items() for method in found}
    assert set(RULES) == there


@dataclass
class Fleet:
    """A gateway with a tenant's objects, and the credentials of all kinds of callers."""

    gateway: RunningGateway
    config: FixedConfig
    publisher: FakePublisher
    letters: FakeDeadLetters
    credentials: dict[str, str]
    # The configuration at the start.
    made: Configuration
    replays: Replays
    # How many requests have sent events so far.
    brought: int = 0

    def send(self, method: str, path: str, who: Who | None) -> httpx.Response:
        """Reset all state, and send a request."""
        self.config.configuration = self.made
        replays_of(self.gateway).known = dict(self.replays)
        self.letters.redrives.clear()
        self.brought = len(self._logged)
        headers = {"content-type": "application/json"}
        if who is not None:
            headers["authorization"] = f"Bearer {self.credentials[who.name]}"
        if who is not None and who.is_browser:
            headers["origin"] = ORIGIN
        beacon_key = f"?key={self.credentials[who.name]}" if who and "beacon" in path else ""
        body = BODIES.get(path, {}) if method in {"PUT", "POST"} else None
        return self.gateway.client.request(
            method, self.filled(path) + beacon_key, headers=headers, json=body
        )

    def filled(self, path: str) -> str:
        names = dict(NAMES, replay=next(replay for _, replay in self.replays))
        if "/rows/" in path:
            names["key"] = names["row"]
        return path.format(**names)

    def has_changed(self) -> bool:
        """Return whether an object of the tenant shop changed; others may have new channels."""
        now = self.config.configuration
        channels = {each: of for each, of in now.channels.items() if of.tenant == "shop"}
        ours = replace(now, channels=channels, change_counts=self.made.change_counts)
        return (
            ours != self.made
            or replays_of(self.gateway).known != self.replays
            or bool(self.letters.redrives)
            or len(self._logged) != self.brought
        )

    @property
    def _logged(self) -> list[Any]:
        return [batch for log in self.publisher.logs[stream_topic("orders")] for batch in log]


def _made(gateway: RunningGateway, path: str, credential: str, **body: Any) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {credential}"}
    method = "POST" if path.endswith(("links", "replays")) else "PUT"
    answer = gateway.client.request(method, f"/v1/{path}", headers=headers, json=body)
    assert answer.is_success, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def _credentials(gateway: RunningGateway, admin: str) -> dict[str, str]:
    credentials = {}
    for who in EVERYBODY:
        fields: dict[str, Any] = {"scopes": sorted(who.scopes), "streams": sorted(who.streams)}
        if who.is_link:
            asked = {"streams": sorted(who.streams)} if who.streams else {}
            credentials[who.name] = _made(gateway, "links", admin, **asked)["link"]
            continue
        if who.is_browser:
            fields |= {"kind": "browser", "origins": [ORIGIN]}
        made = _made(gateway, f"keys/{who.name}", OPERATOR, tenant=who.tenant, **fields)
        credentials[who.name] = made["key"]
    return credentials


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    topics = [stream_topic(name) for name in ("orders", "hits", "sums")]
    config, publisher = FixedConfig(Configuration()), FakePublisher(topics)
    letters = FakeDeadLetters([a_dead_letter(1)])
    receipts = FakeReceipts([a_ledger_row(REQUEST_ID)])
    settings = Settings(auth="keys", operator_key=OPERATOR, allow_private=True)
    sender = ChannelSettings(allow_private=True).channel_sender
    with (
        running_gateway(
            publisher, config, settings, dead_letters=letters, receipts=receipts
        ) as gateway,
        trier(publisher, TrialAnswer("it is tried")),
        observer(publisher, sender),
    ):
        _made(gateway, "tenants/shop", OPERATOR)
        admin = _made(gateway, "keys/maker", OPERATOR, scopes=["admin"], tenant="shop")["key"]
        for stream in ("orders", "hits", "sums"):
            _made(gateway, f"streams/{stream}", admin)
        for path in ("pipelines/totals", "tables/prices", "channels/pager", "keys/least"):
            kind, _ = path.split("/")
            route = f"/v1/{kind}/{{{kind.removesuffix('s')}}}"
            _made(gateway, path, admin, **BODIES.get(route, {}))
        _made(gateway, "streams/orders/destinations/billing", admin, url="http://1.1.1.1/in")
        _made(gateway, "pipelines/totals/replacement", admin, **DOCUMENT)
        credentials = _credentials(gateway, admin)
        _made(gateway, "streams/orders/replays", admin, destination="billing", **SINCE)
        yield Fleet(
            gateway,
            config,
            publisher,
            letters,
            credentials,
            config.configuration,
            dict(replays_of(gateway).known),
        )


def no_refusal(who: Who, path: str) -> set[int]:
    """Return what else is right for another tenant's name: taken, or free if each has its own."""
    if path == "/v1/channels/{channel}" and who.tenant != "shop":
        return {201}
    return {409} if who.tenant != "shop" or path == "/v1/keys/{key}" else set()


def may(who: Who, rule: Rule) -> bool:
    """Return whether the rule lets the caller act on the objects of tenant shop, stream orders."""
    if rule.is_open:
        return True
    if who.is_browser:
        return rule.scope.startswith("write") and rule.narrow == "its own"
    is_for_them = "for browsers" not in rule.scope and not (
        "not a link" in rule.scope and who.is_link
    )
    if not is_for_them or not who.scopes & rule.scopes:
        return False
    is_narrow_enough = rule.narrow == "all" or (
        rule.narrow == "its own" and "orders" in who.streams
    )
    return rule.is_list or (who.tenant == "shop" and (not who.streams or is_narrow_enough))


def names_shown(answer: httpx.Response) -> set[str]:
    """Return which of the tenant's names are in an answer."""
    words = {*NAMES.values(), "sums"} - {NAMES["row"], "shop"}
    return {word for word in words if re.search(rf"\b{word}\b", answer.text)}


@pytest.mark.parametrize(("method", "path"), sorted(RULES))
def test_each_kind_of_key_does_what_the_table_says(fleet: Fleet, method: str, path: str) -> None:
    rule = RULES[method, path]
    for who in EVERYBODY:
        answer = fleet.send(method, path, who)
        told = f"{method} {path} by {who.name}: {answer.status_code} {answer.text[:300]}"
        if not may(who, rule):
            assert answer.status_code in REFUSED | no_refusal(who, path), told
            assert not fleet.has_changed(), told
        else:
            assert answer.status_code not in REFUSED, told
        is_theirs = who.tenant == "shop" and (not who.streams or "orders" in who.streams)
        if rule.is_list and not rule.is_open and not is_theirs:
            assert not names_shown(answer), told
    if not rule.is_open:
        assert fleet.send(method, path, None).status_code == 401, "a key must be required"
        assert not fleet.has_changed()


def test_what_is_in_dead_letters_is_for_keys_that_read(fleet: Fleet) -> None:
    for path in ("streams/orders/dead-letters", "dead-letters"):
        for who in BROAD:
            headers = {"authorization": f"Bearer {fleet.credentials[who.name]}"}
            answer = fleet.gateway.client.get(f"/v1/{path}?payload=true", headers=headers)
            assert answer.status_code == (200 if who.name == "read" else 403), answer.text


def test_the_operator_is_in_charge_of_tenants_and_rotates_secrets(fleet: Fleet) -> None:
    headers = {"authorization": f"Bearer {OPERATOR}"}
    for (method, path), rule in RULES.items():
        if rule.scope == "operator":
            answer = fleet.gateway.client.request(
                method, fleet.filled(path), headers=headers, json={} if method != "DELETE" else None
            )
            assert answer.status_code not in REFUSED, answer.text
