"""Writes a row only if its writer's conditions hold (If-Match, If-None-Match), and makes ETags.

Kafka has no compare-and-set. A claim in the log admits one conditional change of a row at a time
(ADR 0060). The change first writes a barrier, which is the deletion of a row that does not exist.
Once this machine's copy has passed the barrier, it has all that the previous writer wrote.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from gateway.answers import Answer
from gateway.fleet.claims import Claims, KeyClaim
from gateway.intake.events import Event
from gateway.problems import Problem
from gateway.publish.publisher import Publisher
from gateway.publish.report import Fate, Report
from gateway.tables.room import SOON
from shared.config.table import Table
from shared.runtime.tables.copy import Row

_IF_MATCH, _IF_NONE_MATCH = b"if-match", b"if-none-match"
_WEAK = "W/"
# No row can have this key: keys are printable.
_NO_ROW = b"\0"


def tag_of(offset: int) -> str:
    return f'"{offset}"'


def is_known(headers: Mapping[bytes, str], tag: str) -> bool:
    """Return whether If-None-Match has the tag; weak tags count, too (RFC 9110, 13.1.2)."""
    tags = {each.removeprefix(_WEAK) for each in _listed(headers, _IF_NONE_MATCH)}
    return not tags.isdisjoint({tag, "*"})


def are_conditions(headers: Mapping[bytes, str]) -> bool:
    return not headers.keys().isdisjoint({_IF_MATCH, _IF_NONE_MATCH})


def check_row(headers: Mapping[bytes, str], row: Row | None) -> None:
    """Refuse the write if the row does not meet the conditions."""
    wanted = _listed(headers, _IF_MATCH)
    if row is None:
        if _IF_MATCH in headers:
            raise Problem("changed_meanwhile", "The row does not exist (any more).")
        return
    tag = tag_of(row.offset)
    if _IF_MATCH in headers and wanted.isdisjoint({tag, "*"}):
        detail = "Somebody else has changed the row: read it again."
    elif is_known(headers, tag):
        detail = "The row has an ETag that If-None-Match excludes."
    else:
        return
    members = {"etag": tag}
    raise Problem("changed_meanwhile", detail, headers=((b"etag", tag.encode()),), members=members)


@dataclass(frozen=True, slots=True)
class RowTurns:
    """Admits one conditional change of a row at a time, over all gateways."""

    claims: Claims
    publisher: Publisher

    async def take(
        self,
        table: Table,
        key: str,
        *,
        judge: Callable[[int], Awaitable[None]],
        store: Callable[[], Awaitable[Sequence[Report]]],
    ) -> Sequence[Report]:
        """Store if `judge` allows it; `judge` gets the offset that the copy must have passed."""
        claim = await self._claimed(table, key)
        is_certain = True
        try:
            await judge(await self._barrier(table))
            claim.begin_sending()
            is_certain = False
            reports = await store()
            is_certain = all(report.fate is not Fate.UNKNOWN for report in reports)
            return reports
        finally:
            # A write of unknown fate may be stored late. Keep its claim, so that no other change
            # writes a barrier before then.
            if is_certain:
                await self.claims.release(claim)

    async def _claimed(self, table: Table, key: str) -> KeyClaim:
        scope = f"row\0{table.topic}\0{key}"
        try:
            claim = await self.claims.begin(scope, (), tenant=table.tenant)
        except Problem as problem:
            is_taken = problem.code == "idempotency_key_in_use"
            why = "Somebody else is changing the row" if is_taken else ""
            raise _not_stored(why) from problem
        assert not isinstance(claim, Answer), "turns keep no answers"
        return claim

    async def _barrier(self, table: Table) -> int:
        barrier = Event.of(id="", key=_NO_ROW, value=b"", headers=())
        report = (await self.publisher.publish(table.topic, [barrier]))[0]
        if report.fate is not Fate.STORED or report.first_offset is None:
            # Without its place nobody can tell whether a copy has all rows before it.
            raise _not_stored()
        return report.first_offset


def _not_stored(why: str = "") -> Problem:
    why = why or "The row's conditions cannot be checked now"
    return Problem("not_stored", f"{why}: nothing was stored. Send it again.", headers=SOON)


def _listed(headers: Mapping[bytes, str], name: bytes) -> set[str]:
    return {each.strip() for each in headers.get(name, "").split(",")}
