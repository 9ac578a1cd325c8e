"""Reads a stream's minutes from a gateway: the statements, and the ids of their events.

The ids come from the gateway's ledger, and from the log itself where the ledger has none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from deploy.cli.events.proofs import Proof, broken_link
from shared.event.times import HOUR_MS, minute_of, rfc3339
from shared.proof.acked import EARLY_MS_MAX, WILD
from shared.runtime.control_client import ControlClient
from shared.runtime.setup_error import NotFoundError, UsageError

_PAGE_MAX = 1_000
# How long before a minute begins it may be signed: events may be 5 min early, and clocks differ.
_SIGNED_EARLY_MS_MAX = HOUR_MS


@dataclass(frozen=True, slots=True)
class MinuteIds:
    """The newest statement about a minute, the first break in its chain, and the minute's ids."""

    signed: Proof
    # The first statement that does not name its predecessor; None if the chain is unbroken.
    broken_at: Proof | None
    ids: frozenset[str]

    @property
    def is_whole(self) -> bool:
        """Whether these ids are exactly the signed ones."""
        return self.signed.has_ids(self.ids)


class _ListedIds(msgspec.Struct):
    """Ids of a stream, in the order of its log."""

    ids: list[str]
    # The ids that a restore has put back.
    restored: list[str]
    newer: str
    is_complete: bool


class _ListedStatements(msgspec.Struct):
    statements: list[dict[str, Any]]
    older: str | None


def read_minute(text: str) -> int:
    """Parse a minute as people write it: 2026-11-21T19:05Z, or epoch milliseconds."""
    try:
        if text.lstrip("-").isdigit():
            at_ms = int(text)
        else:
            parsed = datetime.fromisoformat(text)
            aware = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
            at_ms = round(aware.timestamp() * 1000)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not a minute: write it as 2026-11-21T19:05Z, or in epoch milliseconds."
        ) from error
    return at_ms if at_ms == WILD else minute_of(at_ms)


def minute_ids(
    client: ControlClient, stream: str, minute_ms: int, mine: frozenset[str]
) -> MinuteIds:
    """Return the newest statement about a minute, and its ids.

    If the signed ids are exactly `mine`, it returns `mine` without asking for the ids. So a
    complete list can still be verified when Hifi no longer has the ids, even a year later.
    """
    chain = statements_of(client, stream, minute_ms)
    about = [signed for signed in chain if signed.minute_ms == minute_ms]
    if not about:
        raise NotFoundError(
            f"There is no statement about that minute of {stream}: nothing was acknowledged in"
            " it, or it is not checked yet. The check takes about three minutes after the last"
            " event, and longer while a destination makes no progress, which the console shows."
        )
    newest = about[-1]
    ids = mine if newest.has_ids(mine) else ids_of(client, newest)
    return MinuteIds(newest, broken_link(chain), ids)


def statements_of(client: ControlClient, stream: str, since_ms: int) -> list[Proof]:
    """Return a stream's statements in order: all about minutes since `since_ms`, some older."""
    proofs: list[Proof] = []
    query = {"limit": str(_PAGE_MAX)}
    while True:
        answer = client.send("GET", "streams", stream, "statements", query=query)
        page = msgspec.json.decode(answer.content, type=_ListedStatements)
        proofs += map(Proof.of, page.statements)
        signed_ms = proofs[-1].issued_at_ms if proofs else since_ms
        if page.older is None or signed_ms < since_ms - _SIGNED_EARLY_MS_MAX:
            return proofs[::-1]
        query["before"] = page.older


def ids_of(client: ControlClient, said: Proof) -> frozenset[str]:
    """Return the signed ids of a minute; if some are gone, those that are left."""
    ids: set[str] = set()
    since_ms = said.minute_ms - EARLY_MS_MAX
    for acked in (True, False):
        for page in id_pages(client, said.stream, since_ms, acked=acked, minute_ms=said.minute_ms):
            ids.update(page.ids)
            # Stop: the ids are exactly the signed ones, or too many, and more pages only add ids.
            if len(ids) > said.id_count or said.has_ids(ids):
                return frozenset(ids)
    return frozenset(ids)


def id_pages(
    client: ControlClient,
    stream: str,
    since_ms: int,
    *,
    acked: bool = False,
    minute_ms: int | None = None,
) -> Iterator[_ListedIds]:
    """Yield the ids of events stored since `since_ms`; from the ledger if `acked`, else the log."""
    query = {"acked": str(acked).lower(), "from": rfc3339(max(0, since_ms))}
    if minute_ms is not None:
        query["minute_ms"] = str(minute_ms)
    while True:
        answer = client.send("GET", "streams", stream, "ids", query=query)
        page = msgspec.json.decode(answer.content, type=_ListedIds)
        yield page
        if page.is_complete:
            return
        query["after"] = page.newer
