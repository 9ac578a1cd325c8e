"""Calls the gateway's control API as the person who is signed in."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from console.page_threads import InThread
from shared.config.destination import Destination
from shared.runtime.control_client import ControlClient

_SETTING = "HIFI_OBSERVE_CONSOLE_GATEWAY"
# Dead letters or replays on a page, few enough for a phone.
ROWS_MAX = 20
# Dead letters in a file: the most that the gateway returns at a time, below its limit of bytes.
EXPORTED_MAX = 1_000
_NDJSON = "application/x-ndjson"
# Changes on a page, with a line each.
_CHANGES_MAX = 100
# Events on a page; the gateway returns each with its content.
NEWEST_MAX = 50
# The gateway looks up the outcomes of at most this many events.
LOOKED_AT_MAX = 200
OUTCOMES = ("delivered", "waiting", "dead", "queued")
# Rows of a table on a page, which shows the beginning of each.
_TABLE_ROWS_MAX = 50
# The same wait as that of `hifi pipelines put`.
_JUDGED_LOOKS_MAX, _JUDGED_LOOK_S = 10, 0.5
# The filters of dead letters, and their labels.
FILTERS = {
    "stream": "Stream",
    "destination": "Destination",
    "reason": "Reason",
    "answer": "Answer",
    "id": "Event id",
    "from": "Dead since",
    "to": "Dead before",
}


class Letters(
    msgspec.Struct,
    frozen=True,
    rename={"newest": "dead_letters", "is_whole": "is_complete"},
):
    """The newest matching letters, as the gateway lists them, and the number of all matches."""

    newest: tuple[dict[str, Any], ...] = ()
    matching: int = 0
    redrivable: int = 0
    # The streams with letters that can be redriven.
    redrivable_streams: tuple[str, ...] = ()
    # The cursor of the page after this one.
    next: str | None = None
    # False if not all dead letters could be read in time.
    is_whole: bool = True


class TableRow(msgspec.Struct, frozen=True):
    """A row of a table, as it was written."""

    key: str
    row: msgspec.Raw
    offset: int
    time_ms: int

    @property
    def text(self) -> str:
        return bytes(self.row).decode(errors="replace")


class KnownUpTo(msgspec.Struct, frozen=True):
    """The offset up to which the table is known, and how long ago that offset was the newest."""

    offset: int
    age_ms: int


class TableRows(msgspec.Struct, frozen=True):
    """Rows in the order of their keys, and the cursor for the next ones."""

    rows: tuple[TableRow, ...]
    next: str | None
    as_of: KnownUpTo


class ControlSession:
    """Calls the gateway for one person; without a key, with only the rights that anybody has."""

    def __init__(self, gateway: str, credential: str, in_thread: InThread) -> None:
        self._client = ControlClient(gateway, credential, setting=_SETTING)
        self._in_thread = in_thread

    async def letters(
        self, filters: Mapping[str, str], *, streams: Collection[str], before: str = ""
    ) -> Letters:
        """Return the newest dead letters of `streams`; if empty, of all that the key may see.

        `before`: the `next` of the previous page.
        """
        asked = {**filters, "stream": list(streams), "limit": str(ROWS_MAX)}
        asked |= {"before": before} if before else {}
        page = await self._call("GET", "dead-letters:newest", query=asked)
        return msgspec.convert(page, Letters)

    async def export_letters(
        self, filters: Mapping[str, str], *, streams: Collection[str]
    ) -> bytes:
        """Return the letters with their content, the oldest of each Kafka partition first."""
        asked = {**filters, "stream": list(streams), "limit": str(EXPORTED_MAX)}
        page = await self._in_thread(
            self._client.send, "GET", "dead-letters", query=asked, accept=_NDJSON
        )
        return page.content

    async def redrive(self, filters: Mapping[str, str], *, streams: Collection[str]) -> int:
        """Send matching letters again, with one redrive for each stream."""
        fields = {name: value for name, value in filters.items() if name != "stream"}
        sent = 0
        for stream in streams:
            done = await self._call("POST", "streams", stream, "dead-letters:redrive", body=fields)
            sent += done["count"]
        return sent

    async def newest(
        self, stream: str, *, before: str = "", picked: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return the newest events of a stream, or those before `before`."""
        query = {"limit": str(NEWEST_MAX), **picked}
        if picked.keys() & {"destination", "outcome"}:
            query["limit"] = str(LOOKED_AT_MAX)
        if "until" in query:
            query["until"] += "Z"
        query |= {"before": before} if before else {}
        return await self._call("GET", "streams", stream, "events", query=query)

    async def changes(
        self, picked: Mapping[str, str], *, before: int | None = None, count: int = _CHANGES_MAX
    ) -> dict[str, Any]:
        """Return the newest changes, or those before `before`."""
        query = {"limit": str(count), **picked}
        query |= {name: f"{query[name]}Z" for name in ("from", "to") if name in query}
        query |= {} if before is None else {"before": str(before)}
        return await self._call("GET", "changes", query=query)

    async def key_uses(self) -> dict[str, list[int | None]]:
        """Return when each secret of each key was last used, the oldest secret first."""
        listed = await self._call("GET", "keys")
        # Gateways of earlier releases do not report this.
        return {each["id"]: each.get("texts_used_at_ms", []) for each in listed["keys"]}

    async def rows(self, table: str, *, prefix: str = "", after: str = "") -> TableRows:
        """Return the rows after the key `after` whose keys begin with `prefix`."""
        return await self._rows(table, prefix=prefix, after=after, limit=str(_TABLE_ROWS_MAX))

    async def row(self, table: str, key: str) -> TableRows:
        """Return the row of a key, if there is one; keys are sent as a query, not in a path."""
        answer = await self._rows(table, **{"from": key, "limit": "1"})
        rows = tuple(row for row in answer.rows if row.key == key)
        return msgspec.structs.replace(answer, rows=rows)

    async def _rows(self, table: str, **asked: str) -> TableRows:
        query = {name: value for name, value in asked.items() if value}
        path = ("tables", table, "rows")
        answer = await self._in_thread(self._client.send, "GET", *path, query=query)
        return msgspec.json.decode(answer.content, type=TableRows)

    async def resend(self, stream: str, *, place: str, destination: str) -> Mapping[str, str]:
        """Send an event again to one destination, or all of its stream; return the outcomes."""
        body = {"place": place, **({"destination": destination} if destination else {})}
        done = await self._call("POST", "streams", stream, "events:resend", body=body)
        outcomes: Mapping[str, str] = done["destinations"]
        return outcomes

    async def test_channel(self, name: str) -> dict[str, Any]:
        """Send a test message; return whether the channel took it, and its answer."""
        return await self._call("POST", "channels", name, "test")

    async def replays(self, stream: str, *, before: str = "", **picked: str) -> dict[str, Any]:
        """Return the newest replays of a stream, or those before `before`."""
        query = {"limit": str(ROWS_MAX), **picked, **({"before": before} if before else {})}
        return await self._call("GET", "streams", stream, "replays", query=query)

    async def replay(self, stream: str, replay_id: str) -> dict[str, Any]:
        return await self._call("GET", "streams", stream, "replays", replay_id)

    async def order_replay(self, stream: str, order: Mapping[str, Any]) -> dict[str, Any]:
        """Start a replay, or only count the events that it would send."""
        return await self._call("POST", "streams", stream, "replays", body=order)

    async def cancel_replay(self, stream: str, replay_id: str) -> None:
        await self._call("DELETE", "streams", stream, "replays", replay_id)

    async def version(self, *path: str) -> str:
        """Return the current ETag of an object, for the form that asks before a change."""
        _, version = await self.seen(*path)
        return version

    async def change(
        self, method: str, *path: str, version: str, action: str = ""
    ) -> dict[str, Any]:
        """Change an object; RefusedError if somebody has changed it since it was shown."""
        self._client.expect(version, *path)
        return await self._call(method, *path, *([action] if action else []))

    async def seen(self, *path: str) -> tuple[dict[str, Any], str]:
        """Return an object as the gateway shows it, with placeholders for secrets, and its ETag."""
        shown = await self._call("GET", *path)
        return shown, self._client.etag(*path)

    async def set_fields(self, *path: str, version: str, **fields: Any) -> None:
        """Set some fields of an object, unless somebody has changed it since it was shown."""
        before, _ = await self.seen(*path)
        await self.put(*path, version=version, body=before | fields)

    async def put(self, *path: str, version: str, body: dict[str, Any]) -> dict[str, Any]:
        """Write a whole object if it still has this version; without a version, create it."""
        if version:
            self._client.expect(version, *path)
        else:
            self._client.expect_none(*path)
        return await self._call("PUT", *path, body=body)

    async def judged(self, pipeline: str) -> tuple[dict[str, Any], str]:
        """Wait some seconds until a pipeline is judged; return it and its ETag."""
        for _ in range(_JUDGED_LOOKS_MAX):
            shown, version = await self.seen("pipelines", pipeline)
            if shown["state"]["standing"] != "checking":
                break
            # There are few threads, so this wait takes none.
            await asyncio.sleep(_JUDGED_LOOK_S)
        return shown, version

    async def try_out(self, pipeline: str, **what: Any) -> dict[str, Any]:
        """Try a pipeline's document on some events."""
        return await self._call("POST", "pipelines", pipeline, "try", body=what)

    async def build(self, pipeline: str, *, begin: str, body: dict[str, Any]) -> dict[str, Any]:
        """Start a pipeline's replacement, which reads from `begin` on."""
        path = ("pipelines", pipeline, "replacement")
        return await self._call("PUT", *path, body=body, query={"from": begin})

    async def _call(self, method: str, *path: str, **more: Any) -> dict[str, Any]:
        return await self._in_thread(self._client.call, method, *path, **more)


def control_path(destination: Destination) -> tuple[str, ...]:
    """Return a destination's path in the gateway's API."""
    return "streams", destination.stream, "destinations", destination.name
