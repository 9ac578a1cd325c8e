"""Serves the rows of tables: writes go to Kafka, reads to this machine's copies.

Plain ASGI, as for events: a look-up takes no longer than a framework's own work for a request. A
write is answered with 200 only after Kafka has reported each of its rows stored.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from time import monotonic
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.types import Receive, Scope

from gateway.answers import Answer, problem_answer, unforeseen
from gateway.callers import Caller, Callers, ConfigSource
from gateway.control.stores.changes import ControlStore
from gateway.fleet.claims import Claims
from gateway.fleet.quota import Quotas
from gateway.intake.admission import read_encoding
from gateway.intake.byte_budget import ByteBudget
from gateway.intake.events import Event
from gateway.intake.request_body import Body, BodyLimits, ClientGoneError
from gateway.problems import Problem
from gateway.publish.publisher import Publisher
from gateway.publish.report import Fate, Report
from gateway.settings import Settings
from gateway.tables.conditions import RowTurns, are_conditions, check_row, is_known, tag_of
from gateway.tables.room import SOON, Rooms
from gateway.tables.row_answers import AsOf, one_row, some_rows
from gateway.tables.row_bodies import RowReader
from gateway.tables.row_queries import RowQuery, read_row_query
from gateway.tables.watching import Watch
from gateway.watchers import Watchers
from shared.config.table import Table
from shared.runtime.clock import now_ms
from shared.runtime.tables.copy import ClosedError, DamagedError, Row, RowPage
from shared.runtime.tables.folders import OpenCopy, TableCopies

_PATH = re.compile(r"/v1/tables/([^/]+)/rows(?:/(.+))?")
# How long a GET waits for the copy to reach `at_least`, and the pause between its checks.
_AT_LEAST_S, _LOOK_S = 2.0, 0.02
_BODIES_BYTES_MAX = 32_000_000


@dataclass(frozen=True, slots=True)
class RowRequest:
    """A request about rows, with its body still to be read."""

    method: str
    table: str
    key: str | None
    headers: dict[bytes, str]
    scope: Scope
    receive: Receive
    request_id: str


@dataclass
class Rows:
    """The rows of all tables."""

    settings: Settings
    publisher: Publisher
    config: ConfigSource
    store: ControlStore
    callers: Callers
    quotas: Quotas
    claims: Claims
    copies: TableCopies
    watchers: Watchers = field(default_factory=Watchers)

    def __post_init__(self) -> None:
        share = self.settings.tenant_in_flight_share if self.callers.is_on else 1.0
        self._rooms = Rooms(self.copies)
        self._turns = RowTurns(self.claims, self.publisher)
        most = min(_BODIES_BYTES_MAX, self.settings.in_flight_bytes_max)
        self._byte_budget = ByteBudget(most, tenant_bytes_max=int(share * most))
        self._limits = BodyLimits.of(self.settings, self.settings.body_bytes_max)

    def leave(self) -> None:
        """End all watches, as this process is stopping; watchers reconnect elsewhere."""
        self.watchers.are_leaving = True

    async def serve(self, request: RowRequest) -> Answer | Watch | None:
        """Return the answer; None if the client has disconnected."""
        try:
            return await self._serve(request)
        except Problem as problem:
            return problem_answer(problem, request.request_id)
        except ClientGoneError:
            return None
        except Exception as error:  # noqa: BLE001 - reported as internal_error
            return unforeseen(request.request_id, error)

    async def _serve(self, request: RowRequest) -> Answer | Watch:
        _check_path(request.scope["raw_path"])
        caller = self._caller(request)
        tenant = self.config.configuration.tenants.get(caller.tenant)
        table = await self._table(request.table, caller)
        self.quotas.admit(tenant, now_s=monotonic())
        headers = self.quotas.headers(tenant, now_s=monotonic())
        match request.method, request.key:
            case "GET" | "HEAD", key:
                answer = await self._read(request, table, key)
                return answer if isinstance(answer, Watch) else answer.with_headers(headers)
            case ("PUT" | "DELETE", str()) | ("POST", None):
                return (await self._write(request, caller, table)).with_headers(headers)
            case _:
                pass
        allowed = b"GET, POST" if request.key is None else b"GET, PUT, DELETE"
        detail = f"This path does not support {request.method}."
        raise Problem("method_not_allowed", detail, headers=((b"allow", allowed),))

    def _caller(self, request: RowRequest) -> Caller:
        """Return the caller; refuse them if they lack the scope for this request."""
        state = request.scope.get("state", {})
        caller = self.callers.of_request(request.headers, state=state, now_ms=now_ms())
        origin = request.headers.get(b"origin")
        if request.method not in {"GET", "HEAD"}:
            caller.check("write", origin=origin)
        # Callers with the scope write or admin may also read.
        elif not caller.scopes & {"write", "admin"} or caller.origins is not None:
            caller.check("read", origin=origin)
        return caller

    async def _table(self, name: str, caller: Caller) -> Table:
        if name not in self.config.configuration.tables:
            # This gateway must know tables that another gateway has just made.
            await self.store.catch_up()
        return caller.table(name, self.config.configuration)

    # Writing

    async def _write(self, request: RowRequest, caller: Caller, table: Table) -> Answer:
        if table.written_by is not None:
            detail = f"Only the pipeline {table.written_by!r} may write this table."
            raise Problem("table_in_use", detail)
        body = Body(
            request.receive,
            byte_budget=self._byte_budget,
            tenant=caller.tenant,
            overdue_bytes=self.publisher.overdue_bytes,
            limits=self._limits,
        )
        rows: list[Event] = []
        try:
            rows = await self._rows(request, caller, table, body)
            with self._rooms.of(table, rows) as outcomes:
                reports = await self._store(request, table, rows)
                outcomes.extend(reports)
        finally:
            body.release()
            tenant = self.config.configuration.tenants.get(caller.tenant)
            count, now_s = len(rows), monotonic()
            self.quotas.use(tenant, events=count, byte_count=body.byte_count, now_s=now_s)
        return _stored(rows, reports, request.request_id)

    async def _store(
        self, request: RowRequest, table: Table, rows: Sequence[Event]
    ) -> Sequence[Report]:
        key = request.key
        if not are_conditions(request.headers):
            return await self.publisher.publish(table.topic, rows)
        if key is None:
            detail = "If-Match and If-None-Match work for one row only: write it with PUT."
            raise Problem("bad_header", detail)

        async def judge(at_least: int) -> None:
            try:
                copy = await self._copy(table, at_least)
                row, _ = copy.copy.row(key)
            except (ClosedError, DamagedError) as error:
                raise self._not_ready(table) from error
            check_row(request.headers, row if row and _is_kept(table, row) else None)

        store = partial(self.publisher.publish, table.topic, rows)
        return await self._turns.take(table, key, judge=judge, store=store)

    async def _rows(
        self, request: RowRequest, caller: Caller, table: Table, body: Body
    ) -> list[Event]:
        encoding = read_encoding(request.headers.get(b"content-encoding"))
        waits = b"expect" in request.headers
        wire = await body.read(request.headers.get(b"content-length"), waits=waits)
        at_ms, signature = now_ms(), request.headers.get(b"hifi-signature")
        caller.check_signature(signature, body=wire, now_ms=at_ms)
        reader = RowReader(
            table,
            depth_max=self.settings.json_depth_max,
            rows_max=self.settings.events_max,
            now_ms=at_ms,
        )
        if request.method == "DELETE":
            return reader.deletion(str(request.key))
        raw = body.decompress(encoding, wire)
        return reader.lines(raw) if request.key is None else reader.row(request.key, raw)

    # Reading

    async def _read(self, request: RowRequest, table: Table, key: str | None) -> Answer | Watch:
        last_id = request.headers.get(b"last-event-id")
        query = read_row_query(key, request.scope["query_string"], last_id)
        if query.watches:
            return Watch(table, query, self.copies, self.watchers, lambda: self._now(request))
        try:
            try:
                return await self._shown(request, table, query)
            except ClosedError:
                # Another copy has replaced it in the meantime.
                return await self._shown(request, self._now(request), query)
        except ClosedError as error:
            raise self._not_ready(table) from error

    async def _shown(self, request: RowRequest, table: Table, query: RowQuery) -> Answer:
        copy = await self._copy(table, query.at_least)
        try:
            if query.key is not None:
                return self._one(request, table, query, copy)
            return await self._some(request, table, query, copy)
        except DamagedError as error:
            self.copies.damaged(table)
            raise self._not_ready(table) from error

    def _now(self, request: RowRequest) -> Table:
        """Return the table if it still exists and the caller may still use it."""
        return self._caller(request).table(request.table, self.config.configuration)

    async def _copy(self, table: Table, at_least: int | None) -> OpenCopy:
        until_s = monotonic() + _AT_LEAST_S
        while True:
            copy = self.copies.of(table)
            if copy is None:
                raise self._not_ready(table)
            if at_least is None or copy.copy.extent().offset > at_least:
                return copy
            if monotonic() > until_s:
                raise self._stale(copy, f"This copy has not reached offset {at_least} yet.")
            await asyncio.sleep(_LOOK_S)

    def _one(self, request: RowRequest, table: Table, query: RowQuery, copy: OpenCopy) -> Answer:
        assert query.key is not None, "the query is for one row"
        row, extent = copy.copy.row(query.key)
        as_of = AsOf.of(extent, heard_ms=copy.heard.at_ms, now_ms=now_ms())
        if row is not None and not _is_kept(table, row):
            row = None
        body = b"" if row is None else one_row(row, as_of)
        if query.max_age_ms is not None and as_of.age_ms > query.max_age_ms:
            raise self._stale(copy, _too_old(as_of), known=body)
        if row is None:
            detail = f"There is no row {query.key[:100]!r}."
            raise Problem("unknown_row", detail, members={"as_of": as_of.members()})
        return _answer(request, body, tag=row.offset)

    async def _some(
        self, request: RowRequest, table: Table, query: RowQuery, copy: OpenCopy
    ) -> Answer:
        def page() -> RowPage:
            return copy.copy.page(
                query.begin,
                query.end,
                limit=query.limit,
                is_wanted=lambda row: query.wants(row) and _is_kept(table, row),
            )

        # Reading a thousand rows from a disk may be slow; in a thread it does not block others.
        row_page = await asyncio.to_thread(page)
        as_of = AsOf.of(row_page.extent, heard_ms=copy.heard.at_ms, now_ms=now_ms())
        body = some_rows(row_page.rows, row_page.more_after, as_of)
        if query.max_age_ms is not None and as_of.age_ms > query.max_age_ms:
            raise self._stale(copy, _too_old(as_of), known=body)
        return _answer(request, body, tag=as_of.offset)

    def _not_ready(self, table: Table) -> Problem:
        detail = "This machine has no copy of the table yet: one is being made."
        if self.copies.is_full(table):
            detail = "The table is over its limit, so this machine's copy has stopped: raise the"
            detail += f" limit ({table.bytes_max} bytes, bytes_max)."
        return Problem("table_not_ready", detail, headers=SOON)

    @staticmethod
    def _stale(copy: OpenCopy, detail: str, *, known: bytes = b"") -> Problem:
        as_of = AsOf.of(copy.copy.extent(), heard_ms=copy.heard.at_ms, now_ms=now_ms())
        members = {"as_of": as_of.members(), **({"known": msgspec.Raw(known)} if known else {})}
        return Problem("stale", detail, headers=SOON, members=members)


def row_request(
    scope: Scope, receive: Receive, headers: dict[bytes, str], request_id: str
) -> RowRequest | None:
    """Return the request if its path is one of rows."""
    match = _PATH.fullmatch(scope["path"])
    if match is None:
        return None
    return RowRequest(scope["method"], match[1], match[2], headers, scope, receive, request_id)


def _check_path(raw_path: bytes) -> None:
    """Refuse bytes that are not UTF-8: their replacement could make two keys equal."""
    try:
        unquote_to_bytes(raw_path).decode()
    except UnicodeDecodeError as error:
        detail = f"The path is not percent-encoded UTF-8: {error}."
        raise Problem("bad_path", detail) from error


def _is_kept(table: Table, row: Row) -> bool:
    return table.retention_ms is None or row.time_ms + table.retention_ms > now_ms()


def _too_old(as_of: AsOf) -> str:
    return f"This gateway's copy is {as_of.age_ms} ms old, which is more than max_age."


def _answer(request: RowRequest, body: bytes, *, tag: int) -> Answer:
    etag = tag_of(tag)
    headers = ((b"etag", etag.encode()), (b"cache-control", b"no-cache"))
    if is_known(request.headers, etag):
        return Answer(HTTPStatus.NOT_MODIFIED, b"", headers)
    return Answer(HTTPStatus.OK, body, headers)


def _stored(rows: Sequence[Event], reports: Sequence[Report], request_id: str) -> Answer:
    """Return the answer once the outcome of each row is known."""
    fates = {report.fate for report in reports}
    if fates == {Fate.STORED}:
        ends = [(each.first_offset or 0) + len(each.positions) - 1 for each in reports]
        template = b'{"request_id":"%b","accepted":%d,"offset":%d}'
        return Answer(HTTPStatus.OK, template % (request_id.encode(), len(rows), max(ends)))
    stored = sum(len(each.positions) for each in reports if each.fate is Fate.STORED)
    members = {"accepted": stored}
    if Fate.UNKNOWN in fates:
        detail = "Kafka did not report in time. The rows may be stored: send all of them again."
        raise Problem("outcome_unknown", detail, members=members)
    detail = "Kafka has not stored all rows. Send all of them again."
    raise Problem("not_stored", detail, headers=SOON, members=members)
