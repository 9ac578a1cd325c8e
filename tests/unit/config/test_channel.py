"""Channels: one kind each, complete addresses, and the tenants whose trouble they report."""

from dataclasses import replace
from typing import Any

import pytest

from shared.config.configuration import Configuration
from shared.config.credentials import change_secrets, secrets_of
from shared.config.model import ConfigError
from shared.config.outside.channel import Channel, Concern, is_mailbox

SEALED = "sealed:v1:x"
URL = "https://shop.example/hook"
SHOP = Channel("ops", "webhook", tenant="shop", url=URL, signing_secrets=(SEALED,))


@pytest.mark.parametrize(
    ("via", "settings", "wrong"),
    [
        ("webhook", {}, "url"),
        ("webhook", {"url": URL, "secret_url": SEALED}, "url"),
        ("webhook", {"url": URL, "recipients": ["a@shop.example"]}, "recipients"),
        ("webhook", {"url": "ftp://shop.example"}, "url"),
        ("slack", {}, "secret_url"),
        ("slack", {"url": URL}, "secret_url"),
        ("slack", {"secret_url": "https://hooks.example/plain"}, "secret_url"),
        ("slack", {"secret_url": SEALED, "signing_secrets": [SEALED]}, "signing_secrets"),
        ("mail", {}, "recipients"),
        ("mail", {"recipients": ["a@shop.example"], "url": URL}, "url"),
        ("mail", {"recipients": ["a@shop.example"] * 11}, "recipients"),
        ("mail", {"recipients": ["a@shop.example\r\nbcc: b@c.example"]}, "recipients.0"),
        ("pager", {}, "via"),
        ("webhook", {"url": URL, "about": ["weather"]}, "about.0"),
    ],
)
def test_it_is_whole_and_goes_one_way(via: str, settings: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Channel.of({"name": "ops", "via": via, **settings})
    assert refused.value.setting == wrong
    assert "plain" not in str(refused.value)


@pytest.mark.parametrize(
    ("via", "settings"),
    [
        ("webhook", {"url": URL, "signing_secrets": [SEALED]}),
        ("webhook", {"secret_url": SEALED}),
        ("slack", {"secret_url": SEALED}),
        ("mail", {"recipients": ["a@shop.example"], "about": ["loss", "held"]}),
    ],
)
def test_a_record_of_it_is_read_as_it_was_written(via: str, settings: dict[str, Any]) -> None:
    channel = Channel.of({"name": "ops", "tenant": "shop", "via": via, **settings})
    configuration = Configuration().apply(b"channel:shop/ops", channel.to_json())
    assert configuration.channels == {"shop/ops": channel}
    assert configuration.object(channel.config_key) == channel
    assert not configuration.apply(b"channel:shop/ops", None).channels


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a@",
        "@b.example",
        "a@b",
        "a b@c.example",
        "a@b.example,c@d.example",
        "<a@b.example>",
        '"a"@b.example',
        "a@b.example\n",
        ".a@b.example",
        "ä@b.example",
        "a@-b.example",
        f"{'a' * 65}@b.example",
        f"a@{'b.' * 130}example",
    ],
)
def test_what_is_no_mail_address_is_none(text: str) -> None:
    assert not is_mailbox(text)


def test_mail_addresses_as_people_have_them() -> None:
    assert is_mailbox("on-call+hifi@ops.shop.example")


def test_a_tenant_is_told_of_nobody_elses_trouble_and_the_operator_of_all() -> None:
    assert SHOP.is_told(Concern.FAILING, "shop")
    assert not SHOP.is_told(Concern.FAILING, "bank")
    assert not SHOP.is_told(Concern.NO_AUDIT, "")
    operators = Channel("ops", "webhook", url=URL)
    assert operators.is_told(Concern.FAILING, "bank")
    assert operators.is_told(Concern.NO_AUDIT, "")
    only_losses = replace(operators, about=frozenset({Concern.LOSS}))
    assert only_losses.is_told(Concern.LOSS, "shop")
    assert not only_losses.is_told(Concern.FAILING, "shop")


def test_its_secrets_are_sealed_for_itself_alone() -> None:
    assert SHOP.owner == "channel:shop/ops"
    assert SHOP.id == "shop/ops"


def test_where_its_secrets_are_is_known() -> None:
    fields = {"via": "webhook", "secret_url": "an address", "signing_secrets": ["a", "b"]}
    assert dict(secrets_of(fields)) == {
        "secret_url": "an address",
        "signing_secrets.0": "a",
        "signing_secrets.1": "b",
    }
    assert change_secrets(fields, lambda path, _: path)["secret_url"] == "secret_url"
