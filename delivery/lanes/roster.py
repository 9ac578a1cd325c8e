"""Keeps the destinations to send to: the configured ones that are ours, and their offsets."""

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from delivery.lanes.book import Book
from delivery.lanes.following.terms import TERMS_LOG
from delivery.lanes.marks import OPEN, TO_BEGIN, Mark, mark_key, mark_record
from delivery.lanes.marks_log import MARKS, MarksLog
from delivery.lanes.outlet import Outlet
from delivery.lanes.strands.lives import Lives
from delivery.lanes.strands.repeats import repeats_key
from delivery.lanes.units import Strand
from shared.config.configuration import Configuration
from shared.config.destination import Destination, Start
from shared.event.record import KafkaPartition, Position
from shared.event.topics import LANES, RETRIER, TERMS, stream_topic
from shared.runtime.kafka.log_client import LogClient


@dataclass
class Roster:
    """The destinations of one process."""

    book: Book
    log: LogClient
    marks: MarksLog
    outlet: Outlet
    # Returns whether a destination's shard, given its name, is ours.
    owns: Callable[[str], bool]
    # Returns the positions that destinations published for lag tools, where Kafka reports them.
    told: Callable[[Collection[str]], Awaitable[Mapping[str, Position]]]
    wanted: Mapping[str, Destination] = field(default_factory=dict)
    # Destinations whose strands are not all entered yet.
    new: set[str] = field(default_factory=set)
    # Where the log of terms ends, if Kafka reports it.
    terms_at: int | None = None
    _seen: Configuration = field(default_factory=Configuration)
    _places: dict[str, list[KafkaPartition]] = field(default_factory=dict)
    # The Kafka partitions that a look asks about, and the versions that they were computed from: of
    # our share, and of Kafka's answers.
    _asked: tuple[KafkaPartition, ...] = ()
    _asked_by: tuple[int, int] | None = None
    _changes: int = 0
    # How often our share grew, and the offset up to which marks must be read since the last growth;
    # None until Kafka has reported it.
    _begun: int = 0
    _marks_until: int | None = 0
    # The last growth after which a look entered all strands about which Kafka reports enough.
    _entered: int | None = None
    # Strands whose newest mark may be behind, as an earlier owner wrote it late.
    _understated: set[Strand] = field(default_factory=set)
    _restarts: int = 0

    def __post_init__(self) -> None:
        self.lives = Lives(self.log)

    @property
    def is_entered(self) -> bool:
        """Whether our strands have resumed, except where Kafka does not report enough."""
        return self._entered == self._begun

    @property
    def place_count(self) -> int:
        """The number of Kafka partitions that are watched."""
        return sum(map(len, self._places.values()))

    def running(self) -> Iterable[Destination]:
        """Return the destinations that are sent to now."""
        return (
            each
            for each in self.wanted.values()
            if not each.is_paused and (each.id not in self.new or self.book.strands(each.id))
        )

    def strands(self, is_in: Callable[[str], bool]) -> list[Strand]:
        """Return the strands of the shards that `is_in` accepts."""
        return [
            strand
            for name, to in self.wanted.items()
            if any(map(is_in, to.shard_names))
            for strand in self.book.strands(name)
            if is_in(to.shard_of(strand.where.partition))
        ]

    def destination(self, name: str) -> Destination | None:
        """Return a destination if it may be sent to now."""
        destination = self.wanted.get(name)
        return destination if destination and not destination.is_paused else None

    def take(self, configuration: Configuration) -> None:
        """Update the wanted destinations: those that are configured, and ours."""
        if configuration is self._seen:
            return
        self._seen = configuration
        self._look_who_is_ours()

    def begin(self) -> None:
        """Take over a larger share; its earlier owners have written their last marks."""
        self._begun += 1
        self._marks_until = None
        self._look_who_is_ours()

    def drop(self) -> None:
        """Release a part of our share."""
        self._look_who_is_ours()

    async def forget(self, newest: Callable[[], Awaitable[Configuration]]) -> None:
        """Delete the marks of destinations of which even the removal is forgotten.

        A destination is configured before it has a mark, so read the marks first.
        """
        log = self.marks
        written = sorted(log.marks.keys() | log.repeats.keys())
        marked = [each for each in written if self.owns(each.destination)]
        now = await newest()
        known = now.destinations.keys() | now.removed_destinations.keys()
        if not known or self._seen.destinations.keys() - known:
            # A configured destination is neither there nor listed as removed: the log lost records.
            return
        # The retrier's own records belong to no destination.
        gone = [each for each in marked if each.destination not in known | {RETRIER}]
        if gone:
            keys = [mark_key(each) for each in gone]
            keys += [repeats_key(each) for each in gone if each in log.repeats]
            await self.outlet.take_away(LANES, keys)
            for strand in gone:
                log.marks.pop(strand, None)
                log.repeats.pop(strand, None)

    def _look_who_is_ours(self) -> None:
        self._changes += 1
        configured = self._seen.destinations
        wanted = {
            name: each for name, each in configured.items() if any(map(self.owns, each.shard_names))
        }
        for name in self.wanted.keys() - wanted.keys():
            self.book.leave(name)
        self.new = (self.new | (wanted.keys() - self.wanted.keys())) & wanted.keys()
        self.wanted = wanted
        for name, destination in wanted.items():
            if destination.shards > 1:
                self._look_which_are_ours(name, destination)
        for name, destination in wanted.items():
            self.book.follow(name, is_following=destination.latency == "realtime")

    def _look_which_are_ours(self, name: str, destination: Destination) -> None:
        """Update the strands of a destination with several shards, of which some may be ours."""
        for strand in self.book.strands(name):
            if not self.owns(destination.shard_of(strand.where.partition)):
                self.book.let_go_of(strand)
        if self._missing(name):
            self.new.add(name)

    async def look(self) -> bool:
        """Fetch the ends of all streams, and enter new strands; False if Kafka does not answer.

        Only a look that began after a strand became ours, and that knows all marks written until
        then, enters the strand. So a process that lags behind with marks delays no other.
        """
        begun, now_s = self._begun, time.monotonic()
        if self.marks.restarts != self._restarts:
            self._say_all_again()
        ends = await self.log.ends(await self._what_to_ask())
        marks_end, self.terms_at = ends.pop(MARKS, None), ends.pop(TERMS_LOG, None)
        if self.book.see_ends(ends, as_of_s=now_s):
            # A recreated topic looks like this.
            self.lives.again_s = now_s
        if begun == self._begun and self._marks_until is None:
            self._marks_until = marks_end
        if self._may_enter(begun):
            await self._enter(ends, begun)
        await self._set_right()
        return marks_end is not None

    async def _what_to_ask(self) -> tuple[KafkaPartition, ...]:
        """Return the Kafka partitions whose ends to fetch: the same tuple until a change."""
        changes = self._changes
        is_same = self._asked_by == (changes, self.log.told_count)
        if is_same and time.monotonic() < self.lives.again_s:
            return self._asked
        topics = {stream_topic(each.stream) for each in self.wanted.values()}
        await self._look_at_lives(topics)
        if not is_same:
            await self.log.follow({LANES, TERMS, *topics})
            self._asked_by = changes, self.log.told_count
            self._see_places({topic: self._places_of(topic) for topic in topics})
            # Do not keep asking a Kafka that has no such topic yet.
            terms = self.log.leaders([TERMS_LOG])
            self._asked = (MARKS, *terms, *(log for each in self._places.values() for log in each))
        return self._asked

    async def _look_at_lives(self, topics: Collection[str]) -> None:
        """Have strands of a deleted topic begin in the one that was recreated under its name."""
        await self.lives.look(topics)
        for strand in self.book.of_deleted_topics(self.lives.now):
            if not self.book.is_free(strand):
                self.book.hold_back(strand)
                self.lives.look_again_soon()
                continue
            self.marks.marks[strand] = self.book.mark(strand)
            self.book.let_go_of(strand)
            self.new.add(strand.destination)

    def _may_enter(self, begun: int) -> bool:
        """Say whether our marks are read, and the share has not grown since a look began."""
        is_known = self._marks_until is not None and self.marks.at >= self._marks_until
        return is_known and begun == self._begun

    def _see_places(self, places: dict[str, list[KafkaPartition]]) -> None:
        """Mark destinations as new if their stream has grown, in its settings or in Kafka."""
        changed = {topic for topic, each in places.items() if each != self._places.get(topic)}
        self._places = places
        if changed:
            topics = {name: stream_topic(each.stream) for name, each in self.wanted.items()}
            self.new |= {name for name, topic in topics.items() if topic in changed}

    def places(self, destination: Destination) -> list[KafkaPartition]:
        """Return the Kafka partitions that are ours."""
        places = self._all_places(destination)
        if destination.shards == 1:
            return places
        return [each for each in places if self.owns(destination.shard_of(each.partition))]

    def _all_places(self, destination: Destination) -> list[KafkaPartition]:
        return self._places.get(stream_topic(destination.stream), [])

    def _places_of(self, topic: str) -> list[KafkaPartition]:
        """Return the configured Kafka partitions, or those in Kafka if it has more."""
        stream = self._seen.streams.get(topic.removeprefix(stream_topic("")))
        count = stream.partition_count if stream else 0
        known = self.log.partitions(topic)
        return known if len(known) >= count else [KafkaPartition(topic, n) for n in range(count)]

    def _say_all_again(self) -> None:
        """Write all marks again: a recreated log may lack ours, or be shorter than before."""
        self._restarts, self._marks_until = self.marks.restarts, None
        for strand in (each for name in self.wanted for each in self.book.strands(name)):
            self.marks.marks.pop(strand, None)
            self._understated.add(strand)

    def mark_came(self, strand: Strand, mark: Mark) -> None:
        """Note a mark that somebody has written."""
        if strand in self.book and mark.says_less(self.book.mark(strand)):
            self._understated.add(strand)

    async def _set_right(self) -> None:
        """Write our marks again where the log has older ones, until it has ours.

        A strand under way soon gets a newer mark, which this one must not follow.
        """
        log, book = self.marks.marks, self.book
        known = {each: book.mark(each) for each in self._understated if each in book}
        self._understated = {
            each for each, mark in known.items() if log.get(each, TO_BEGIN).says_less(mark)
        }
        if news := {each: known[each] for each in self._understated if book.is_free(each)}:
            await self._store(news)

    async def _store(self, marks: Mapping[Strand, Mark]) -> None:
        await self.outlet.store([mark_record(*each) for each in marks.items()])

    def waiting(self) -> dict[str, tuple[list[int], str]]:
        """Return, by destination, the Kafka partitions in which it cannot begin yet, and why."""
        names = [name for name in self.new if not self.wanted[name].is_paused]
        return {name: self._why_not(name) for name in names}

    def _why_not(self, name: str) -> tuple[list[int], str]:
        places = [each.where for each in self._missing(name)]
        known = self.log.partitions(stream_topic(self.wanted[name].stream))
        why = "Kafka does not report where they begin"
        if not self.is_entered:
            why = "hifi.lanes is not yet read up to the time when this process got them"
        elif not places:
            why = "its stream is not configured"
        elif not set(places) <= set(known):
            why = "Kafka has no such Kafka partitions"
        elif len(self.log.leaders(places)) < len(places):
            why = "no leader"
        return [where.partition for where in places], why

    def _missing(self, name: str) -> list[Strand]:
        strands = [Strand(name, where) for where in self.places(self.wanted[name])]
        return [each for each in strands if each not in self.book]

    async def _enter(self, ends: Position, begun: int) -> None:
        """Enter new strands at their marks, or where they are to begin.

        Kafka partitions are independent: one with an unknown end delays no other.
        """
        missing = {name: self._missing(name) for name in sorted(self.new)}
        first = await self._begun_anew((fresh for each in missing.values() for fresh in each), ends)
        first |= await self._first_marks(missing, ends)
        first = {fresh: self.lives.marked(fresh, mark) for fresh, mark in first.items()}
        # Store marks before sending: if this process dies here, its successor must begin at the
        # same place. The mark of the first Kafka partition shows that a destination has begun, so
        # it is written last.
        for is_last in (False, True):
            if part := [row for row in first.items() if (row[0].where.partition == 0) is is_last]:
                await self._store(dict(part))
        if not self._may_enter(begun):
            return
        marks = self.marks.marks
        marks.update({each: at for each, at in first.items() if each.destination in self.wanted})
        for name in missing.keys() & self.wanted.keys():
            for strand in missing[name]:
                mark = marks.get(strand, TO_BEGIN)
                if mark != TO_BEGIN and strand.where in ends and self.lives.has(strand, mark):
                    wait_s = self.marks.wait_s(strand)
                    again_s = time.monotonic() + wait_s if wait_s else 0.0
                    self.book.enter(strand, self.lives.marked(strand, mark), not_before_s=again_s)
                    self.mark_came(strand, mark)
            destination = self.wanted[name]
            self.book.follow(name, is_following=destination.latency == "realtime")
            if self._all_places(destination) and not self._missing(name):
                self.new.discard(name)
        self._entered = begun

    async def _begun_anew(self, strands: Iterable[Strand], ends: Position) -> dict[Strand, Mark]:
        """Return where strands of a deleted and recreated topic begin."""
        marks = self.marks.marks
        former = [key for key in strands if key in marks and self.lives.is_former(key, marks[key])]
        starts = await self.log.starts({key.where for key in former}) if former else {}
        known = starts.keys() & ends.keys()
        # Repeated ranges stay known: copies of the old topic's events may wait for days.
        return {
            key: self.lives.begun_anew(key, marks[key], starts[key.where], ends[key.where])
            for key in former
            if key.where in known
        }

    async def _first_marks(
        self, missing: Mapping[str, Collection[Strand]], ends: Position
    ) -> dict[Strand, Mark]:
        """Return where strands without a mark begin, as far as Kafka reports it."""
        marks = self.marks.marks
        first: dict[Strand, Mark] = {}
        begins: dict[Start, list[Strand]] = {}
        unmarked = [fresh for each in missing.values() for fresh in each if fresh not in marks]
        asked = {each.destination for each in self._to_begin(unmarked)}
        reported = await self.told(asked) if asked else {}
        for name in sorted(((missing.keys() - asked) | reported.keys()) & self.wanted.keys()):
            destination, strands = self.wanted[name], missing[name]
            unmarked = [fresh for fresh in strands if fresh not in marks]
            first |= self._unmarked(destination, unmarked, reported.get(name, {}))
            begins_all = Strand(name, KafkaPartition(stream_topic(destination.stream), 0))
            # It has positions in its groups, but no marks: the owner of the first shard makes them.
            has_lost = begins_all in strands and bool(reported.get(name))
            is_known = begins_all in marks or begins_all in first
            has_begun = destination.shards == 1 or has_lost or is_known
            for strand in strands:
                mark = first.get(strand, marks.get(strand))
                if mark is None and not has_begun:
                    # The owner of the first shard decides where to begin.
                    continue
                if strand.where in ends and (mark is None or mark == TO_BEGIN):
                    # Kafka partitions that were added later are read whole.
                    start: Start = destination.start if mark else "earliest"
                    begins.setdefault(start, []).append(strand)
        for start, strands in begins.items():
            starts = await self._begins({each.where for each in strands}, start, ends)
            first |= {
                each: Mark(at, at) for each in strands if (at := starts.get(each.where)) is not None
            }
        return first

    def _unmarked(
        self, destination: Destination, strands: Sequence[Strand], told: Position
    ) -> dict[Strand, Mark]:
        if told or all(each.where.partition for each in strands):
            # Everything now in the log may have been sent.
            return {key: Mark(told[key.where], OPEN) for key in strands if key.where in told}
        # For all shards, as their owners take Kafka partitions without marks for newly added ones.
        places = self._all_places(destination)
        every = (Strand(destination.id, where) for where in places)
        known = self.marks.marks
        return self._to_begin(key for key in every if key not in known and key not in self.book)

    def _to_begin(self, strands: Iterable[Strand]) -> dict[Strand, Mark]:
        """Mark the present Kafka partitions: they begin as the destination says, even if later."""
        return {it: TO_BEGIN for it in strands if it.where in self.log.partitions(it.where.topic)}

    async def _begins(
        self, places: Collection[KafkaPartition], start: Start, ends: Position
    ) -> Mapping[KafkaPartition, int]:
        if start == "earliest":
            return await self.log.starts(places)
        if start == "latest":
            return {where: ends[where] for where in places}
        offsets = await self.log.offsets_at(places, start)
        # More events may have arrived since the ends were fetched.
        self.book.see_ends({where: at for where, at in offsets.items() if at > ends[where]})
        return offsets
