"""Names the addresses of a Hifi and a tenant's key, and creates tenants."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from deploy.local.stack import Stack
from shared.runtime.control_client import ControlClient
from shared.runtime.defaults import HOST

# Every process knows a new key after the promised 2 s; this is a little more.
_KNOWN_S = 2.5
# The quotas that an operator would give to strangers, and one harmful function.
QUOTAS: Mapping[str, Any] = {
    "events_per_s": 2_000,
    "requests_per_s": 100,
    "bytes_per_s": 4_000_000,
    "functions": ["fraud.vast"],
}


@dataclass(frozen=True, slots=True)
class Site:
    """Addresses, and the key of one tenant."""

    gateway: str
    console: str
    # Health pages of some services; none of them requires a key.
    health: tuple[str, ...]
    tenant: str
    # Empty where requests need none.
    key: str = field(default="", repr=False)

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    def call(self, method: str, *path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return ControlClient(self.gateway, self.key or None).call(method, *path, body=body)


def site_of(stack: Stack, tenant: str, key: str = "") -> Site:
    """Return the addresses at which a tenant finds the Hifi of a test."""
    services = [service for service in stack.services if service.name != "sample"]
    return Site(
        gateway=stack.gateway,
        console=f"http://{HOST}:{stack.settings.console_port}",
        health=tuple(service.ready_url for service in services),
        tenant=tenant,
        key=key,
    )


def make_tenant(gateway: str, operator_key: str, tenant: str, quotas: Mapping[str, Any]) -> str:
    """Create a tenant with these quotas; return the text of a key with all permissions in it."""
    operator = ControlClient(gateway, operator_key)
    operator.call("PUT", "tenants", tenant, body=dict(quotas))
    scopes = ["write", "read", "admin"]
    made = operator.call("PUT", "keys", tenant, body={"tenant": tenant, "scopes": scopes})
    time.sleep(_KNOWN_S)
    key: str = made["key"]
    return key


async def sign_in(client: httpx.AsyncClient, console: str, key: str) -> str:
    """Sign in and return the session's cookie, which the client also keeps."""
    if not key:
        return ""
    form = await client.get(f"{console}/sign-in")
    token = re.search(r'name="csrf" value="([0-9a-f]{64})"', form.text)
    assert token, form.text[:500]
    fields = {"csrf": token[1], "key": key, "next": "/"}
    answer = await client.post(f"{console}/sign-in", data=fields)
    assert answer.status_code == httpx.codes.SEE_OTHER, answer.text[:500]
    return "; ".join(f"{name}={value}" for name, value in client.cookies.items())
