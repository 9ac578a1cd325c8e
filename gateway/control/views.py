"""Decides how streams, keys, tenants and limits look from outside: what is read and shown.

A key's hashes stay inside: what is shown of its texts is how many are good.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gateway.intake.admission import ACCEPT_POST
from gateway.intake.encodings import ENCODINGS
from gateway.settings import Settings
from shared.config.access import ApiKey, Secret, Tenant
from shared.config.configuration import Stream
from shared.event.topics import STREAM_PARTITIONS

_STREAM_FIELDS = {"partition_count", "key_pointer", "schema"}
_KEY_FIELDS = {"tenant", "kind", "scopes", "streams", "origins", "expires_at_ms", "must_sign"}
_TENANT_FIELDS = {"requests_per_s", "events_per_s", "bytes_per_s"}


def stream(found: Stream) -> dict[str, Any]:
    return {
        "name": found.name,
        "tenant": found.tenant,
        "partition_count": found.partition_count,
        "key_pointer": found.key_pointer,
        "schema": json.loads(found.json_schema) if found.json_schema else None,
    }


def read_stream(name: str, fields: Mapping[str, Any], before: Stream | None, tenant: str) -> Stream:
    """The stream that a PUT describes; what it does not say is as on the first day.

    Only the partitions stay as many as they are: they cannot become fewer.
    """
    _check_fields(fields, _STREAM_FIELDS | {"name", "tenant"})
    if fields.get("name", name) != name or fields.get("tenant", tenant) != tenant:
        raise ValueError("name and tenant: they cannot be other than the path's and the caller's")
    count = before.partition_count if before is not None else STREAM_PARTITIONS
    schema = fields.get("schema")
    return Stream(
        name,
        partition_count=fields.get("partition_count", count),
        tenant=tenant,
        key_pointer=fields.get("key_pointer", ""),
        json_schema="" if schema is None else json.dumps(schema),
    )


def key(found: ApiKey) -> dict[str, Any]:
    return {
        "id": found.id,
        "tenant": found.tenant,
        "kind": found.kind,
        "scopes": sorted(found.scopes),
        "streams": sorted(found.streams),
        "origins": sorted(found.origins),
        "expires_at_ms": found.expires_at_ms,
        "must_sign": found.must_sign,
        "live_texts": len(found.secrets),
    }


def read_key(key_id: str, fields: Mapping[str, Any], secret: Secret) -> ApiKey:
    _check_fields(fields, _KEY_FIELDS)
    return ApiKey.of({**fields, "id": key_id, "secrets": [asdict(secret)]})


def tenant(found: Tenant) -> dict[str, Any]:
    return asdict(found)


def read_tenant(name: str, fields: Mapping[str, Any]) -> Tenant:
    _check_fields(fields, _TENANT_FIELDS | {"name"})
    if fields.get("name", name) != name:
        raise ValueError("name: it cannot be other than the path's")
    return Tenant(**{**fields, "name": name})


def limits(settings: Settings, quotas: Tenant | None) -> dict[str, Any]:
    """Everything that a sender has to keep to."""
    return {
        "body_bytes_max": settings.body_bytes_max,
        "decompressed_bytes_max": settings.decompressed_bytes_max,
        "ratio_max": settings.ratio_max,
        "events_max": settings.events_max,
        "event_bytes_max": settings.event_bytes_max,
        "json_depth_max": settings.json_depth_max,
        "head_bytes_max": settings.head_bytes_max,
        "beacon_bytes_max": settings.beacon_bytes_max,
        "ack_deadline_s": settings.ack_deadline_s,
        "receive_deadline_s": settings.receive_deadline_s,
        "receive_total_s": settings.receive_total_s,
        "content_types": ACCEPT_POST.split(", "),
        "content_encodings": list(ENCODINGS),
        "quotas": None if quotas is None else asdict(quotas),
    }


def _check_fields(fields: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(fields) - known)
    if unknown:
        raise ValueError(f"{unknown[0]}: there is no such field; there are {sorted(known)}")
