"""One request to the console: who sent it, what it says, and what they may see of it all."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.exceptions import HTTPException

from observe.console.authentication import Identity
from observe.console.control_session import ControlSession
from observe.console.page_context import PageContext
from observe.console.pages.dead_page import FILTERS, Letters
from observe.console.viewers import Viewer
from shared.config.access import ApiKey
from shared.config.destination import Destination
from shared.event.topics import destination_id


@dataclass(frozen=True, slots=True)
class PageRequest:
    identity: Identity
    # Of its query, or of its form.
    fields: Mapping[str, str]
    context: PageContext
    control: ControlSession

    @property
    def viewer(self) -> Viewer:
        return self.identity.viewer

    def field(self, name: str) -> str:
        return self.fields.get(name, "").strip()

    @property
    def streams(self) -> list[str]:
        """The names of the streams that the viewer may look into."""
        streams = self.context.configuration.streams.values()
        sees = self.viewer.sees
        return sorted(each.name for each in streams if sees(each.name, tenant=each.tenant))

    @property
    def keys(self) -> list[ApiKey]:
        tenant = self.viewer.tenant
        keys = self.context.configuration.keys.values()
        return [key for key in keys if tenant in {None, key.tenant}]

    @property
    def key(self) -> ApiKey:
        """The key that is named, if it is one of the viewer's."""
        for key in self.keys:
            if key.id == self.field("id"):
                return key
        raise HTTPException(404, "There is no such key (any more).")

    @property
    def destination(self) -> Destination:
        """The destination that is named, if it is one of the viewer's."""
        stream = self.field("stream")
        named = self.context.configured(destination_id(stream, self.field("destination")))
        if named is None or stream not in self.streams:
            raise HTTPException(404, "There is no such destination, or it is not yours.")
        return named

    @property
    def filters(self) -> dict[str, str]:
        """Which dead letters are asked for."""
        return {name: value for name in FILTERS if (value := self.field(name))}

    async def letters(self) -> Letters:
        """What the viewer may see of the dead letters that are asked for."""
        stream = self.field("stream")
        streams = [name for name in self.streams if stream in {"", name}]
        if not streams:
            return Letters()
        if self.viewer.tenant is None and not stream:
            # Nobody has signed in: the gateway says which streams are everybody's.
            streams = []
        return await self.control.letters(self.filters, streams=streams)
