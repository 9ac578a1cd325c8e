"""Looks at what is the matter each few seconds, and tells each channel in its own time.

What was told is in a file in observe's folder: written after a channel has said yes, so that a
restart says something twice at worst, and forgets nothing that is due.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import structlog

from observe.notify.channel_memory import ChannelMemory, memories_from, to_bytes
from observe.notify.channels import Channel, Channels
from observe.notify.messages import body_of, message_id
from observe.notify.notices import notices_of, untold_of
from observe.notify.sending import post
from shared.config.configuration import Configuration
from shared.flow.flow_record import FlowRecord
from shared.proof.overview import Overview
from shared.runtime.clock import now_ms
from shared.runtime.files.whole_file import write_whole
from shared.runtime.resolver import Resolver

log = structlog.get_logger()

FILE = "notices.json"
_LOOK_S = 5.0
# A channel gets one message in so long, however much is due.
PAUSE_S = 60.0
# After a channel has not taken one: longer each time.
_AGAIN_S_MIN, _AGAIN_S_MAX = 5.0, 600.0


class Notifier:
    """Tells the channels until it is cancelled."""

    def __init__(
        self,
        channels: Channels,
        folder: Path,
        overview: Callable[[], Overview],
        configuration: Callable[[], Configuration],
        flows: Callable[[], Mapping[str, FlowRecord]],
        *,
        pause_s: float = PAUSE_S,
        look_s: float = _LOOK_S,
    ) -> None:
        self._channels = channels
        self._path = folder / FILE
        self._overview, self._configuration, self._flows = overview, configuration, flows
        self._pause_s, self._look_s = pause_s, look_s
        self._told: dict[str, ChannelMemory] = {}
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        if not self._channels.channels:
            # Nobody is to be told: nothing is looked at either.
            await asyncio.Event().wait()
        names = [channel.name for channel in self._channels.channels]
        kept = await asyncio.to_thread(self._read)
        self._told = {name: kept.get(name) or ChannelMemory() for name in names}
        resolver = Resolver()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            for channel in self._channels.channels:
                tasks.create_task(self._serve(channel, resolver))

    async def _watch(self) -> None:
        while True:
            overview, at_ms = self._overview(), now_ms()
            # Nothing begins and nothing ends while Kafka cannot be read.
            if overview.at_ms and not overview.problem:
                flows, known = self._flows(), self._configuration()
                notices = notices_of(overview, known, flows, now_ms=at_ms)
                untold = untold_of(overview)
                changed = [
                    self._told[channel.name].look(
                        [*filter(channel.wants, notices)], untold, now_ms=at_ms
                    )
                    for channel in self._channels.channels
                ]
                if any(changed):
                    await self._write()
            else:
                for told in self._told.values():
                    told.stand_still(now_ms=at_ms)
            await asyncio.sleep(self._look_s)

    async def _serve(self, channel: Channel, resolver: Resolver) -> None:
        """Send what is due; a channel that takes nothing is asked more and more seldom."""
        again_s, told = _AGAIN_S_MIN, self._told[channel.name]
        while True:
            due = told.due(now_ms=now_ms())
            if not due:
                await asyncio.sleep(self._look_s)
                continue
            wrong = await post(
                channel,
                body_of(channel, self._channels, due),
                message_id=message_id(channel, due),
                now_ms=now_ms(),
                resolver=resolver,
            )
            if wrong:
                log.warning("notices.failed", channel=channel.name, error=wrong, again_s=again_s)
                await asyncio.sleep(again_s)
                again_s = min(2 * again_s, _AGAIN_S_MAX)
                continue
            again_s = _AGAIN_S_MIN
            told.was_told(due)
            await self._write()
            log.info("notices.sent", channel=channel.name, begun=len(due.begun), over=len(due.over))
            await asyncio.sleep(self._pause_s)

    def _read(self) -> dict[str, ChannelMemory]:
        try:
            return memories_from(self._path.read_bytes(), now_ms=now_ms())
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            # What holds is told again, which is better than not at all.
            log.warning("notices.unreadable", error=repr(error))
            return {}

    async def _write(self) -> None:
        """A disk that takes nothing costs a repetition after the next start, and nothing else."""
        async with self._writing:
            try:
                await asyncio.to_thread(write_whole, self._path, to_bytes(self._told), mode=0o600)
            except OSError as error:
                log.warning("notices.unwritten", error=repr(error))
