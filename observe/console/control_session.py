"""Reads and changes through the gateway's control API, with the key of whoever is signed in."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from observe.console.pages.dead_page import ROWS_MAX, Letters
from shared.config.destination import Destination
from shared.runtime.control_client import ControlClient

_SETTING = "HIFI_OBSERVE_CONSOLE_GATEWAY"


class ControlSession:
    """What the console may do at the gateway for one person. Without a key: what anybody may."""

    def __init__(self, gateway: str, api_key: str) -> None:
        self._client = ControlClient(gateway, api_key, setting=_SETTING)

    async def letters(self, filters: Mapping[str, str], *, streams: Collection[str]) -> Letters:
        """The newest dead letters of some streams; of all that the key may see if none is named."""
        asked = {**filters, "stream": list(streams), "limit": str(ROWS_MAX)}
        page = await self._call("GET", "dead-letters:newest", query=asked)
        return Letters(
            tuple(page["dead_letters"]),
            page["matching"],
            page["redrivable"],
            tuple(page["redrivable_streams"]),
            is_whole=page["is_complete"],
        )

    async def redrive(self, filters: Mapping[str, str], *, streams: Collection[str]) -> int:
        """Send again what matches, stream by stream, as one re-drive is of one stream."""
        fields = {name: value for name, value in filters.items() if name != "stream"}
        sent = 0
        for stream in streams:
            done = await self._call("POST", "streams", stream, "dead-letters:redrive", body=fields)
            sent += done["count"]
        return sent

    async def version(self, *path: str) -> str:
        """The ETag of an object as it is now, for the form that asks whether to change it."""
        await self._call("GET", *path)
        return self._client.etag(*path)

    async def change(self, method: str, *path: str, version: str, action: str = "") -> None:
        """Change an object if it still is as it was seen; RefusedError says what has changed."""
        self._client.expect(version, *path)
        await self._call(method, *path, *([action] if action else []))

    async def _call(self, method: str, *path: str, **more: Any) -> dict[str, Any]:
        return await asyncio.to_thread(self._client.call, method, *path, **more)


def control_path(destination: Destination) -> tuple[str, ...]:
    """Where the gateway's API has a destination."""
    return "streams", destination.stream, "destinations", destination.name
