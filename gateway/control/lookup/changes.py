"""The route that lists changes: of the caller's tenant, or of all tenants for an operator."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from gateway.authors import Author
from gateway.callers import Caller
from gateway.control.changes.log import AskedChanges, StoredChange
from gateway.control.changes.record import ChangeRecord
from gateway.control.requests import Plane, Reader, TimeMs, also, as_json
from shared.config.access import DEFAULT_TENANT
from shared.event.topics import ConfigKind, stream_and_name

router = APIRouter()

_COUNT_DEFAULT, _COUNT_MAX = 100, 1_000
_CHARS_MAX = 300
_OFFSET_MAX = 10**18

_Text = Annotated[str, Field(max_length=_CHARS_MAX)]


class ChangeQuery(BaseModel):
    """The changes to list, and how many of them."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    limit: Annotated[int, Field(ge=1, le=_COUNT_MAX)] = _COUNT_DEFAULT
    # The `next` of the previous page: only earlier changes.
    before: Annotated[int, Field(ge=0, le=_OFFSET_MAX)] | None = None
    kind: ConfigKind | None = None
    name: _Text | None = Field(default=None, description="The object's name: STREAM/DESTINATION.")
    contains: _Text | None = Field(default=None, description="Part of the object's name.")
    by: _Text | None = Field(default=None, description="The author's name, such as a key's.")
    did: _Text | None = Field(default=None, description="created, changed, deleted, paused ...")
    from_ms: TimeMs | None = Field(default=None, alias="from")
    to_ms: TimeMs | None = Field(default=None, alias="to")
    tenant: _Text | None = Field(default=None, description="Only this tenant's; for operators.")

    @model_validator(mode="after")
    def _check_object(self) -> "ChangeQuery":
        if self.name is not None and self.kind is None:
            raise ValueError("name: it needs kind, the object's kind")
        return self


class ChangedBy(BaseModel):
    tenant: str
    kind: str = Field(
        description="key, token, certificate, operator, hifi; anybody if no keys are required."
    )
    name: str


class ShownSetting(BaseModel):
    name: str
    before: Any = Field(default=None, description="Omitted if it is long or could be secret.")
    after: Any = None


class ShownChange(BaseModel):
    """One change; `number` counts the changes of its tenant, without gaps."""

    number: int
    at_ms: int
    tenant: str
    by: ChangedBy
    kind: str
    name: str
    did: str
    before: str | None = Field(description="The object's ETag before; null for a new object.")
    after: str | None
    settings: list[ShownSetting]
    left_out: int = Field(description="Number of further settings that changed.")


class ChangeList(BaseModel):
    changes: list[ShownChange]
    next: str | None = Field(description="Pass it as `before` to get older changes.")
    is_complete: bool = Field(description="False: time ran out; continue with `next`.")


@router.get(
    "/v1/changes",
    response_model=ChangeList,
    openapi_extra=also("bad_query", "overloaded", "kafka_unavailable"),
)
async def list_changes(
    caller: Reader, plane: Plane, query: Annotated[ChangeQuery, Query()]
) -> Response:
    """List changes and their authors, newest first."""
    if "admin" not in caller.scopes:
        # A key that may only send may not list changes.
        caller.check("read")
    is_operator = caller.tenant == DEFAULT_TENANT and "admin" in caller.scopes
    sees_all = is_operator and not caller.streams
    if query.tenant not in {None, caller.tenant}:
        caller.check_operator()
    asked = AskedChanges(
        count=query.limit,
        tenant=query.tenant if sees_all else caller.tenant,
        object=(query.kind, query.name) if query.kind and query.name is not None else None,
        since_ms=query.from_ms,
        until_ms=query.to_ms,
        before=query.before,
        wanted=_wanted(query, caller, sees_all=sees_all),
    )
    async with plane.changes_turns.of(caller.tenant):
        page = await plane.changes.page(asked)
    return as_json(
        {
            "changes": [_shown(each, sees_all=sees_all) for each in page.changes],
            "next": None if page.older is None else str(page.older),
            "is_complete": page.is_complete,
        }
    )


def _wanted(
    query: ChangeQuery, caller: Caller, *, sees_all: bool
) -> Callable[[ChangeRecord], bool]:
    def wanted(change: ChangeRecord) -> bool:
        return (
            _may_see(caller, change)
            and query.kind in {None, change.kind}
            and (query.contains or "") in change.name
            and query.did in {None, change.did}
            and query.by in {None, _author(change, sees_all=sees_all).name}
        )

    return wanted


def _may_see(caller: Caller, change: ChangeRecord) -> bool:
    """Return whether the caller may see a change; a key for some streams sees only theirs."""
    if not caller.streams:
        return True
    is_of_stream = change.kind in {"stream", "destination"}
    return is_of_stream and stream_and_name(change.name)[0] in caller.streams


def _shown(stored: StoredChange, *, sees_all: bool) -> dict[str, Any]:
    change = stored.change
    shown: dict[str, Any] = msgspec.to_builtins(change)
    shown["by"] = msgspec.to_builtins(_author(change, sees_all=sees_all))
    return {"at_ms": stored.at_ms, **shown}


def _author(change: ChangeRecord, *, sees_all: bool) -> Author:
    """Return the author as far as the caller may know: other tenants' keys stay unnamed."""
    if sees_all or change.by.tenant == change.tenant:
        return change.by
    return Author(change.by.tenant, "operator")
