"""Decides which examples stand beside the answers of the API: the gateway's own views make them.

So an example can neither be forgotten nor be of another shape than the real answer.
"""

from typing import Any

from gateway.control import views
from gateway.control.destination_secrets import shown
from gateway.openapi.receipts import RECEIPT_EXAMPLE
from gateway.settings import Settings
from shared.config.access import ApiKey, Tenant, new_text, secret_from
from shared.config.configuration import Stream
from shared.config.destination import Destination

Json = dict[str, Any]

_SCHEMA = '{"type":"object","required":["price"]}'
_STREAM = Stream("orders", partition_count=4, key_pointer="/user/id", json_schema=_SCHEMA)
# No chance is in it, so it opens nothing.
_TEXT = new_text(kind="secret", key_id="shop", entropy=bytes(20))
_KEY = ApiKey("shop", (secret_from(_TEXT, signs=False),), streams=frozenset({"orders"}))
_TENANT = Tenant("acme", events_per_s=1_000)
_DESTINATION = Destination("orders", "crm", "https://crm.example/events")
_DEAD_LETTER: Json = {
    "place": "0:17",
    "dead_at_ms": 1_795_288_000_000,
    "stream": "orders",
    "destination": "orders/crm",
    "reason": "status_400",
    "id": "e-1",
    "bytes": 500,
    "attempts": 1,
    "last_status": 400,
    "redriven": False,
}

# What is sent.
NEW_STREAM_EXAMPLE: Json = {
    name: value for name, value in views.stream(_STREAM).items() if name not in {"name", "tenant"}
}
NEW_KEY_EXAMPLE: Json = {"scopes": ["write"], "streams": ["orders"]}
NEW_DESTINATION_EXAMPLE: Json = {"url": _DESTINATION.url, "batch_count_max": 100}
NEW_TENANT_EXAMPLE: Json = {"events_per_s": 1_000}


def examples(settings: Settings) -> dict[str, Json]:
    """What each operation answers when it succeeds, by its name."""
    stream, tenant, destination = views.stream(_STREAM), views.tenant(_TENANT), shown(_DESTINATION)
    key = views.key(_KEY)
    with_text = {**key, "key": _TEXT}
    return {
        "showLimits": views.limits(settings, _TENANT),
        "listStreams": {"streams": ["orders"]},
        "showStream": stream,
        "putStream": stream,
        "listDestinations": {"destinations": [destination]},
        "showDestination": destination,
        "putDestination": destination,
        "resumeDestination": destination,
        "listDeadLetters": {"dead_letters": [_DEAD_LETTER], "next": "0:17"},
        "redriveDeadLetters": {
            "redrive_id": "0c9a4b7f3c1e4d1f8e3a5b6c7d8e9f00",
            "count": 1,
            "already": 0,
            "malformed": 0,
            "is_complete": True,
        },
        "showReceipt": RECEIPT_EXAMPLE,
        "listKeys": {"keys": [key]},
        "showKey": key,
        "putKey": with_text,
        "rotateKey": {**with_text, "live_texts": 2},
        "retireKey": key,
        "showTenant": tenant,
        "putTenant": tenant,
        "describe": {"openapi": "3.1.0", "info": {"title": "Hifi gateway", "version": "1"}},
    }


def with_examples(paths: Json, settings: Settings) -> Json:
    """The paths, with an example beside each success that has none of its own yet."""
    known = examples(settings)
    for item in paths.values():
        for method, operation in item.items():
            if method == "parameters":
                continue
            for status, response in operation["responses"].items():
                content = response.get("content", {}).get("application/json")
                if content is not None and status < "300" and "example" not in content:
                    content["example"] = known[operation["operationId"]]
    return paths
