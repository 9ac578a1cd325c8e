"""Routes to set up tables: who writes them, how long rows stay, how large a table may get."""

from typing import Any

import structlog
from fastapi import APIRouter, Response
from pydantic import BaseModel

from gateway.callers import Caller
from gateway.control.requests import (
    Admin,
    ChangingPlane,
    ControlPlane,
    JsonObject,
    PathName,
    Plane,
    Reader,
    When,
    also,
    as_json,
    check_kept_name,
    named,
    strictly,
)
from gateway.problems import Problem
from shared.config.configuration import Configuration, RemovedTable
from shared.config.model import ConfigError
from shared.config.table import Table
from shared.event.topics import config_key, table_topic
from shared.runtime.clock import now_ms

log = structlog.get_logger()
router = APIRouter()

_PATH = "/v1/tables/{table}"
# Settings that no PUT can change.
_FOR_GOOD = ("retention_ms", "generation")


class TableLine(BaseModel):
    """A line of a list: the table's writer, retention and size limit."""

    name: str
    written_by: str | None
    retention_ms: int | None
    bytes_max: int


class TableList(BaseModel):
    tables: list[TableLine]


@router.get("/v1/tables", response_model=TableList)
async def list_tables(caller: Reader, plane: Plane) -> Response:
    tables = sorted(plane.configuration.tables.values(), key=lambda each: each.name)
    ours = [_line(each) for each in tables if caller.sees_table(each)]
    return as_json({"tables": ours})


@router.get(_PATH, response_model=Table)
async def show_table(table: PathName, caller: Reader, plane: Plane) -> Response:
    item = caller.table(table, plane.configuration)
    return as_json(item.known_fields(), item=item)


@router.put(
    _PATH,
    response_model=Table,
    responses={201: {"model": Table}},
    openapi_extra=also("table_in_use", "bound_reached", "too_few_brokers"),
)
async def put_table(
    table: PathName, caller: Admin, given: JsonObject, plane: ChangingPlane, when: When
) -> Response:
    def check_owner(owned: Table | None) -> None:
        if owned is not None and owned.tenant != caller.tenant:
            raise Problem("table_in_use", f"The name {table!r} belongs to another tenant.")

    caller.check_tables()

    async def edit(before: Table | None) -> Table:
        gone = plane.configuration.removed_tables.get(table)
        if before is None:
            check_kept_name(gone, caller, code="table_in_use")
        known = before or gone
        wanted = strictly(_read(named(given, name=table, tenant=caller.tenant), known), before)
        _check_writer(wanted, plane.configuration)
        more = wanted.bytes_max - (before.bytes_max if before else 0)
        plane.check_bounds(caller.tenant, {"tables": int(known is None), "table_bytes": more})
        await plane.store.make_own(wanted.spec)
        return wanted

    key = config_key("table", table)
    before, after = await plane.change(key, edit, by=caller.author, when=when, check=check_owner)
    plane.note("table.written", table=table, tenant=caller.tenant)
    return as_json(after.known_fields(), item=after, is_new=before is None)


@router.delete(_PATH, status_code=204, response_class=Response, openapi_extra=also("table_in_use"))
async def delete_table(table: PathName, caller: Admin, plane: Plane, when: When) -> None:
    """Delete the table and its rows. Its name stays reserved for its owner."""
    item = _gone(table, caller, plane) or caller.table(table, plane.configuration)

    async def edit(_: Table | None) -> RemovedTable:
        known = caller.table(table, plane.configuration)
        if pipelines := pipelines_with(table, plane.configuration):
            detail = f"Remove the pipelines that use it first: {', '.join(pipelines)}."
            raise Problem("table_in_use", detail)
        return RemovedTable(table, known.tenant, known.generation, now_ms())

    if isinstance(item, Table):
        await plane.change(item.config_key, edit, by=caller.author, when=when)
        log.info("table.removed", table=table, tenant=caller.tenant)
    # If Kafka does not answer now, a repeated request deletes the rows.
    await plane.store.drop_own(table_topic(item.name, item.generation))


def pipelines_with(table: str, configuration: Configuration) -> list[str]:
    """Return the names of the pipelines that write a table or join with it."""
    return sorted(each.name for each in configuration.documents if table in each.tables)


def _line(table: Table) -> dict[str, Any]:
    return {name: getattr(table, name) for name in TableLine.model_fields}


def _gone(name: str, caller: Caller, plane: ControlPlane) -> RemovedTable | None:
    """Return a removed table of the caller's."""
    gone = plane.configuration.removed_tables.get(name)
    return gone if gone is not None and gone.tenant == caller.tenant else None


def _read(given: dict[str, Any], known: Table | RemovedTable | None) -> Table:
    """Return the table that a PUT describes; row retention and generation cannot change."""
    kept: dict[str, Any] = {"generation": 1}
    if isinstance(known, RemovedTable):
        kept = {"generation": known.generation + 1}
    elif known is not None:
        kept = {name: getattr(known, name) for name in _FOR_GOOD}
    for name, value in kept.items():
        if given.setdefault(name, value) != value:
            raise ConfigError(name, f"it is {value!r}, and a PUT cannot change it")
    return Table.of(given)


def _check_writer(wanted: Table, configuration: Configuration) -> None:
    """Refuse to change the writer while a pipeline writes the table."""
    for pipeline in configuration.pipelines.values():
        if wanted.name in pipeline.tables_to and wanted.written_by != pipeline.name:
            wrong = f"the pipeline {pipeline.name!r} writes the table: remove it first"
            raise ConfigError("written_by", wrong)
