"""Looks for trouble every few seconds, and sends each channel its messages at its own pace.

A file in observe's folder lists the sent notices. It is written soon after a channel has accepted
one, so a restart may repeat a notice, but never forgets one.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import structlog

from observe.notify.channel_memory import ChannelMemory, Due, memories_from, to_bytes
from observe.notify.last_message import LastMessage
from observe.notify.messages import Links, message_of
from observe.notify.notices import Notice, notices_of, untold_of
from shared.config.access import DEFAULT_TENANT
from shared.config.configuration import Configuration
from shared.config.outside.channel import Channel
from shared.event.trial import ChannelAnswer
from shared.flow.flow_record import FlowRecord
from shared.proof.overview import Overview
from shared.runtime.channels.sending import ChannelSender
from shared.runtime.clock import now_ms
from shared.runtime.files.whole_file import write_whole

log = structlog.get_logger()

FILE = "notices.json"
_LOOK_S = 5.0
# A channel gets one message in this time, however many notices are due.
PAUSE_S = 60.0
# Channels to send to at once: each takes a connection, for seconds if the channel hangs.
_AT_ONCE_MAX = 256
# Other tasks get a turn after this many channels.
_LINES_AT_ONCE = 100
# The pause after a channel has refused a message; it grows each time.
_AGAIN_S_MIN, _AGAIN_S_MAX = 5.0, 600.0


@dataclass(slots=True)
class _ChannelLine:
    """The state of one channel: its memory, and the time of its next message."""

    channel: Channel
    memory: ChannelMemory
    # The ends of the pauses after an accepted and after a refused message. A change of the channel
    # ends the latter.
    rests_until_s: float = 0.0
    again_at_s: float = 0.0
    again_s: float = field(default_factory=lambda: _AGAIN_S_MIN)
    sending: asyncio.Task[None] | None = None
    last: LastMessage | None = None

    def is_ready(self, now_s: float) -> bool:
        is_idle = self.sending is None or self.sending.done()
        return is_idle and now_s >= max(self.rests_until_s, self.again_at_s)


class Notifier:
    """Sends notices to the channels until it is cancelled."""

    def __init__(
        self,
        sender: ChannelSender,
        links: Links,
        folder: Path,
        *,
        overview: Callable[[], Overview],
        configuration: Callable[[], Configuration],
        flows: Callable[[], Mapping[str, FlowRecord]],
        pause_s: float = PAUSE_S,
        look_s: float = _LOOK_S,
    ) -> None:
        self._sender, self._links = sender, links
        self._path = folder / FILE
        self._overview, self._configuration, self._flows = overview, configuration, flows
        self._pause_s, self._look_s = pause_s, look_s
        self._lines: dict[str, _ChannelLine] = {}
        self._kept: dict[str, ChannelMemory] = {}
        # Whether anything changed since the last write.
        self._is_changed = False
        self._turns = asyncio.Semaphore(_AT_ONCE_MAX)

    @property
    def last_messages(self) -> Mapping[str, LastMessage]:
        """The last message that this observer sent each channel since the channel's last change."""
        return {name: line.last for name, line in self._lines.items() if line.last is not None}

    async def run(self) -> None:
        self._kept = await asyncio.to_thread(self._read)
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._take(self._configuration().channels)
                    await self._look()
                    await self._tell(tasks)
                    await self._write()
                    await asyncio.sleep(self._look_s)
        finally:
            # Save the notices sent since the last write, so that the next process repeats none.
            await self._write()

    def _take(self, channels: Mapping[str, Channel]) -> None:
        """Keep one line for each existing channel."""
        for gone in self._lines.keys() - channels.keys():
            line = self._lines.pop(gone)
            self._is_changed = True
            if line.sending is not None:
                line.sending.cancel()
        for name, channel in channels.items():
            if name not in self._lines:
                memory = self._kept.pop(name, None) or ChannelMemory()
                self._lines[name] = _ChannelLine(channel, memory)
            if (line := self._lines[name]).channel != channel:
                line.channel, line.again_at_s, line.again_s = channel, 0.0, _AGAIN_S_MIN
                line.last = None
        if channels:
            # The others belong to channels that were removed while no observer ran.
            self._kept.clear()

    async def _each_line(self) -> AsyncIterator[_ChannelLine]:
        for number, line in enumerate(self._lines.values(), 1):
            yield line
            if number % _LINES_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _look(self) -> None:
        overview, at_ms = self._overview(), now_ms()
        # No notice begins or ends while Kafka cannot be read.
        if not overview.at_ms or overview.problem:
            async for line in self._each_line():
                line.memory.stand_still(now_ms=at_ms)
            return
        if not self._lines:
            return
        notices = notices_of(overview, self._configuration(), self._flows(), now_ms=at_ms)
        untold, of_tenants = untold_of(overview), defaultdict[str, list[Notice]](list)
        for notice in notices:
            of_tenants[notice.tenant].append(notice)
        async for line in self._each_line():
            is_operators = line.channel.tenant == DEFAULT_TENANT
            heard = notices if is_operators else of_tenants.get(line.channel.tenant, [])
            wanted = [each for each in heard if line.channel.is_told(each.concern, each.tenant)]
            self._is_changed |= line.memory.look(wanted, untold, now_ms=at_ms)

    async def _tell(self, tasks: asyncio.TaskGroup) -> None:
        """Send to each channel in its own task, so that a hanging channel delays no other."""
        now_s = asyncio.get_running_loop().time()
        async for line in self._each_line():
            if line.is_ready(now_s) and (due := line.memory.due(now_ms=now_ms())):
                line.sending = tasks.create_task(self._send(line, due))

    async def _send(self, line: _ChannelLine, due: Due) -> None:
        channel = line.channel
        async with self._turns:
            answer = await self._answer(channel, due)
        if line.channel == channel:
            line.last = LastMessage(now_ms(), answer.is_taken, answer.says)
        now_s = asyncio.get_running_loop().time()
        named = {"tenant": channel.tenant, "channel": channel.name}
        if not answer.is_taken:
            log.warning("notices.failed", **named, error=answer.says, again_s=line.again_s)
            line.again_at_s = now_s + line.again_s
            line.again_s = min(2 * line.again_s, _AGAIN_S_MAX)
            return
        line.again_s, line.rests_until_s = _AGAIN_S_MIN, now_s + self._pause_s
        line.memory.was_told(due)
        self._is_changed = True
        log.info("notices.sent", **named, begun=len(due.begun), over=len(due.over))

    async def _answer(self, channel: Channel, due: Due) -> ChannelAnswer:
        """Return a channel's answer; a bug of ours with one channel does not stop the others."""
        try:
            message = message_of(channel, self._links, due)
            return await self._sender.send(channel, message, now_ms=now_ms())
        except Exception as error:
            log.exception("notices.mistake", tenant=channel.tenant, channel=channel.name)
            says = f"an error inside Hifi ({type(error).__name__})"
            return ChannelAnswer(is_taken=False, says=says)

    def _read(self) -> dict[str, ChannelMemory]:
        try:
            return memories_from(self._path.read_bytes(), now_ms=now_ms())
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            # Open notices are sent again, which is better than never.
            log.warning("notices.unreadable", error=repr(error))
            return {}

    async def _write(self) -> None:
        """Save the memories; if the disk fails, the next process may only repeat some notices."""
        if not self._is_changed:
            return
        self._is_changed = False
        content = to_bytes({name: line.memory for name, line in self._lines.items()})
        try:
            await asyncio.to_thread(write_whole, self._path, content, mode=0o600)
        except OSError as error:
            log.warning("notices.unwritten", error=repr(error))
