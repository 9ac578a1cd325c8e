"""API keys, and the links that each may make."""

import pytest
from pydantic import ValidationError

from shared.config.access import ApiKey, Scope, Secret, ViewLink


def key(*scopes: Scope, tenant: str = "default", streams: tuple[str, ...] = ()) -> ApiKey:
    secret = Secret("0" * 64)
    named = frozenset(streams)
    return ApiKey("maker", (secret,), tenant=tenant, scopes=frozenset(scopes), streams=named)


@pytest.mark.parametrize(
    ("maker", "tenant", "streams", "may"),
    [
        (key("admin", tenant="acme"), "acme", (), True),
        (key("admin", tenant="acme"), "acme", ("orders",), True),
        (key("admin"), "acme", (), True),
        (key("admin", tenant="acme"), "studio", (), False),
        (key("read", "write", tenant="acme"), "acme", (), False),
        (key("admin", tenant="acme", streams=("orders",)), "acme", ("orders",), True),
        (key("admin", tenant="acme", streams=("orders",)), "acme", ("hits",), False),
        (key("admin", tenant="acme", streams=("orders",)), "acme", (), False),
        # A key for some streams of the default tenant has no power over other tenants.
        (key("admin", streams=("orders",)), "acme", ("orders",), False),
    ],
)
def test_a_key_makes_links_for_what_it_is_for(
    maker: ApiKey, tenant: str, streams: tuple[str, ...], *, may: bool
) -> None:
    link = ViewLink("maker", tenant, 1, frozenset(streams))
    assert link.is_granted_by(maker) is may


@pytest.mark.parametrize("origin", ["*", "https://a.example; script-src *", "https://a.example/"])
def test_only_an_origin_is_one(origin: str) -> None:
    with pytest.raises(ValidationError, match="is not an origin"):
        ViewLink("maker", "acme", 1, origins=frozenset({origin}))
