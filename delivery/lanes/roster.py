"""Keeps who is sent to: what is configured, what of it is ours, and from where each goes on."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from delivery.lanes.book import Book
from delivery.lanes.marks import Mark, mark_key, mark_record
from delivery.lanes.marks_log import MARKS, MarksLog
from delivery.lanes.outlet import Outlet
from delivery.lanes.units import Strand
from shared.config.configuration import Configuration
from shared.config.destination import Destination, Start
from shared.event.record import KafkaPartition
from shared.event.topics import LANES, stream_topic
from shared.runtime.kafka.log_client import LogClient


@dataclass
class Roster:
    """The destinations of one process."""

    book: Book
    log: LogClient
    marks: MarksLog
    outlet: Outlet
    # Whether a destination is ours, by its name.
    holds: Callable[[str], bool]
    wanted: Mapping[str, Destination] = field(default_factory=dict)
    # Destinations whose strands are not all entered yet.
    new: set[str] = field(default_factory=set)
    _seen: Configuration = field(default_factory=Configuration)
    _places: dict[str, list[KafkaPartition]] = field(default_factory=dict)
    # How often more became ours, and up to where the marks must be known since; None until Kafka
    # has said so.
    _begun: int = 0
    _marks_until: int | None = 0

    def running(self) -> Iterable[Destination]:
        """What is sent to now."""
        return (
            each for each in self.wanted.values() if not each.is_paused and each.id not in self.new
        )

    def destination(self, name: str) -> Destination | None:
        """One that may be sent to now."""
        destination = self.wanted.get(name)
        is_sent_to = destination and not destination.is_paused and name not in self.new
        return destination if is_sent_to else None

    def take(self, configuration: Configuration) -> None:
        """Make it so that what is configured, and ours, is wanted."""
        if configuration is self._seen:
            return
        grown = {
            name
            for name, stream in configuration.streams.items()
            if (before := self._seen.streams.get(name)) is None
            or before.partition_count != stream.partition_count
        }
        self._seen = configuration
        self._look_who_is_ours()
        self.new |= {name for name, each in self.wanted.items() if each.stream in grown}

    def begin(self) -> None:
        """More is ours than was before: who had it has marked it to the last."""
        self._begun += 1
        self._marks_until = None
        self._look_who_is_ours()

    def drop(self) -> None:
        """Less is ours than was before."""
        self._look_who_is_ours()

    async def forget(self, newest: Callable[[], Awaitable[Configuration]]) -> None:
        """Take away the marks of destinations of which not even the removal is known any more.

        Who has a mark was configured before that, so what is configured is asked for afterwards.
        """
        marked = [each for each in self.marks.marks if self.holds(each.destination)]
        now = await newest()
        known = now.destinations.keys() | now.removed_destinations.keys()
        if gone := [each for each in marked if each.destination not in known]:
            await self.outlet.take_away(LANES, [mark_key(each) for each in gone])
            for strand in gone:
                self.marks.marks.pop(strand, None)

    def _look_who_is_ours(self) -> None:
        configured = self._seen.destinations
        wanted = {name: each for name, each in configured.items() if self.holds(name)}
        for name in self.wanted.keys() - wanted.keys():
            self.book.leave(name)
        self.new = (self.new | (wanted.keys() - self.wanted.keys())) & wanted.keys()
        self.wanted = wanted
        for name, destination in wanted.items():
            self.book.follow(name, is_following=destination.latency == "realtime")

    async def look(self) -> bool:
        """Ask for the ends of all streams, and enter what is new; False if Kafka does not say.

        What is ours is entered by a look that began afterwards, and that knows all marks of before:
        who is behind with them holds up nobody else.
        """
        begun, now_s = self._begun, time.monotonic()
        topics = {stream_topic(each.stream) for each in self.wanted.values()}
        await self.log.follow({LANES, *topics})
        self._places = {topic: self._places_of(topic) for topic in topics}
        ends = await self.log.ends([MARKS, *(it for each in self._places.values() for it in each)])
        marks_end = ends.pop(MARKS, None)
        self.book.see_ends(ends, as_of_s=now_s)
        if begun == self._begun and self._marks_until is None:
            self._marks_until = marks_end
        for name in sorted(self.new):
            if self._may_enter(name, begun) and await self._enter(self.wanted[name], begun):
                self.new.discard(name)
        return marks_end is not None

    def _may_enter(self, name: str, begun: int) -> bool:
        """Whether it is ours, and has been without a break since a look began."""
        is_known = self._marks_until is not None and self.marks.at >= self._marks_until
        return is_known and begun == self._begun and name in self.wanted

    def places(self, destination: Destination) -> list[KafkaPartition]:
        return self._places.get(stream_topic(destination.stream), [])

    def _places_of(self, topic: str) -> list[KafkaPartition]:
        """As many as the configuration says, or Kafka, if somebody has added some there."""
        stream = self._seen.streams.get(topic.removeprefix(stream_topic("")))
        count = stream.partition_count if stream else 0
        known = self.log.partitions(topic)
        return known if len(known) >= count else [KafkaPartition(topic, n) for n in range(count)]

    async def _enter(self, destination: Destination, begun: int) -> bool:
        """Go on with a destination where its marks say, or where it is to begin."""
        places = self.places(destination)
        if not places or not all(self.book.knows_end(where) for where in places):
            return False
        strands = [Strand(destination.id, where) for where in places]
        new = [each for each in strands if each not in self.book]
        unmarked = [each for each in new if each not in self.marks.marks]
        if unmarked:
            # A stream that has grown goes on by itself: its new Kafka partitions are read whole.
            start: Start = "earliest" if len(unmarked) < len(strands) else destination.start
            begins = await self._begins([each.where for each in unmarked], start)
            if len(begins) < len(unmarked):
                return False
            # Before anything is sent: a life that ends here must not begin elsewhere.
            first = [(each, Mark(begins[each.where], begins[each.where])) for each in unmarked]
            await self.outlet.store([mark_record(*each) for each in first])
            if not self._may_enter(destination.id, begun):
                return False
            self.marks.marks.update(first)
        for strand in new:
            self.book.enter(strand, self.marks.marks[strand])
        self.book.follow(destination.id, is_following=destination.latency == "realtime")
        return True

    async def _begins(
        self, places: Sequence[KafkaPartition], start: Start
    ) -> Mapping[KafkaPartition, int]:
        if start == "earliest":
            return await self.log.starts(places)
        if start == "latest":
            return await self.log.ends(places)
        return await self.log.offsets_at(places, start)
