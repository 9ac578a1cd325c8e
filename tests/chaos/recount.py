"""Recounts the books of a chaos run from the records of senders, destinations and Kafka's log.

Pure, and without the product's own arithmetic. Every acknowledged id is at each destination to
which it was due, or waits, or is dead, or the lane has not reached it. Each arrival was due, each
event that counts as delivered was received, and no process died without a reason.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from shared.proof.statement import Statement

# How many ids a finding names at most; the limit for unsigned ids is higher, to show the reason.
_NAMED_MAX = 5
_UNSIGNED_MAX = 40
# An audit's run knows no destination newer than the run, which takes this long on a busy machine.
_KNOWN_MS = 60_000


class EventId(NamedTuple):
    """The parts of an event id of a chaos run, written as `tenant.stream.kind.number`."""

    tenant: str
    stream: str
    # One letter, which filters use.
    kind: str

    @classmethod
    def read(cls, text: str) -> "EventId":
        tenant, stream, kind, _ = text.split(".")
        return cls(tenant, stream, kind)


@dataclass(frozen=True, slots=True)
class OwedDestination:
    """A present destination, to which all events of its stream are due."""

    tenant: str
    stream: str
    name: str
    # The only kind that its filter passes; empty for all.
    wants: str = ""
    # When the destination was created.
    since_ms: int = 0

    @property
    def id(self) -> str:
        return f"{self.stream}/{self.name}"


class Arrival(NamedTuple):
    """An event that a destination has accepted, whether or not its answer arrived."""

    tenant: str
    destination_id: str
    event_id: str
    is_labelled: bool


class Claim(NamedTuple):
    """A receipt with the outcome `delivered`: its events, by Kafka partition and offsets."""

    destination_id: str
    # First and end of consecutive offsets.
    covered: tuple[tuple[int, int, int], ...]


class Death(NamedTuple):
    """The unexpected end of a process."""

    name: str
    how: str
    # The last line of its log; empty if it is not a sentence of Hifi's.
    reason: str
    # Something that the process needs was taken away at that time: Kafka, or its disk.
    is_excused: bool


@dataclass(frozen=True, slots=True)
class WorldRecord:
    """All that is known about a world at one moment."""

    # By tenant and stream.
    acked: Mapping[tuple[str, str], AbstractSet[str]]
    sent: AbstractSet[str]
    owed: Sequence[OwedDestination]
    arrivals: Sequence[Arrival]
    # The id at each Kafka partition and offset of each stream.
    log: Mapping[str, Mapping[tuple[int, int], str]]
    # Ids by destination: in a retry tier, in dead letters, not reached yet.
    waiting: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    dead: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    queued: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    # Unlabelled events that came again before the Retry-After of the answer to them was over.
    early: Sequence[Arrival] = ()
    # How often each id was sent without an answer saying that it was not stored.
    maybe_stored: Mapping[str, int] = field(default_factory=dict)
    deaths: Sequence[Death] = ()
    # The memory peak of each kind of process, and its limit.
    peaks_mb: Mapping[str, int] = field(default_factory=dict)
    bounds_mb: Mapping[str, int] = field(default_factory=dict)
    # The faults in statements, and in the product's own books.
    statements: Sequence[str] = ()
    books: Sequence[str] = ()


class StoredId(NamedTuple):
    """An id in a minute: its event's place, and when Kafka stored the record that names it."""

    event_id: str
    partition: int
    offset: int
    at_ms: int


class Finding(NamedTuple):
    what: str
    says: str


def findings(recorded: WorldRecord) -> list[Finding]:
    """Return every broken promise; none in a world without faults."""
    taken: dict[str, set[str]] = defaultdict(set)
    for arrival in recorded.arrivals:
        taken[arrival.destination_id].add(arrival.event_id)
    return [
        *_false_acks(recorded),
        *_false_copies(recorded),
        *_unaccounted(recorded, taken),
        *_strangers(recorded),
        *_false_receipts(recorded, taken),
        *_unlabelled(recorded),
        *_early(recorded),
        *_deaths(recorded),
        *_memory(recorded),
        *(Finding("statement", problem) for problem in recorded.statements),
        *(Finding("books", problem) for problem in recorded.books),
    ]


def unsigned(
    is_signed: Callable[[AbstractSet[str]], bool],
    *,
    ledger: Iterable[StoredId],
    log: Iterable[StoredId],
) -> str:
    """Say which of a minute's ids in Kafka were signed, if these are all ids up to some time."""
    named, stored = (sorted(ids, key=lambda one: one.at_ms) for ids in (ledger, log))
    by_ledger, by_log = ({one.event_id for one in ids} for ids in (named, stored))
    only_log = [one for one in stored if one.event_id not in by_ledger]
    only_ledger = [one for one in named if one.event_id not in by_log]
    counts = (
        f"the ledger has {len(by_ledger)} ids, the log {len(by_log)},"
        f" {len({one.event_id for one in only_log})} of which only the log has"
    )
    for what, whole, parts in (
        ("the ledger's and some that only the log has", by_ledger, only_log),
        ("some of the log's", frozenset[str](), stored),
        ("some of the ledger's", frozenset[str](), named),
    ):
        for count in range(len(parts) + 1):
            if is_signed(whole | {one.event_id for one in parts[:count]}):
                return f"{counts}; signed: {what}, without {_places(parts[count:])}"
    return (
        f"{counts}; signed: no set of all ids up to some moment;"
        f" only the log has {_places(only_log)}; only the ledger has {_places(only_ledger)}"
    )


def _places(ids: Sequence[StoredId]) -> str:
    listed = [
        f"{one.event_id} ({one.partition}:{one.offset},"
        f" {datetime.fromtimestamp(one.at_ms / 1_000, UTC):%H:%M:%S.%f})"
        for one in ids[:_UNSIGNED_MAX]
    ]
    if more := len(ids) - len(listed):
        listed.append(f"{more} more")
    return ", ".join(listed) or "none"


def _false_acks(recorded: WorldRecord) -> Iterator[Finding]:
    for (tenant, stream), acked in recorded.acked.items():
        stored = set(recorded.log.get(stream, {}).values())
        if missing := acked - stored:
            yield Finding(
                "false ack", f"{tenant}'s {stream}: answered 2xx, but not stored: {_some(missing)}"
            )


def _false_copies(recorded: WorldRecord) -> Iterator[Finding]:
    """Find ids stored despite an answer that denied it, or more often than they were sent."""
    for stream, log in recorded.log.items():
        refused, again = set(), set()
        for event_id, count in Counter(log.values()).items():
            sent_count = recorded.maybe_stored.get(event_id)
            # Ids in a foreign stream are reported where they arrive.
            if sent_count is None or EventId.read(event_id).stream != stream:
                continue
            if not sent_count:
                refused.add(event_id)
            elif count > sent_count:
                again.add(event_id)
        if refused:
            told = 'answered "not stored", but stored'
            yield Finding("false refusal", f"{stream}: {told}: {_some(refused)}")
        if again:
            told = "stored more often than sent without a refusal"
            yield Finding("stored twice", f"{stream}: {told}: {_some(again)}")


def uneven_lines(
    said: Statement, stated_at_ms: int, *, stored: int, owed: Iterable[OwedDestination]
) -> Iterator[str]:
    """Yield the lines that do not add up in a statement about a minute with `stored` events."""
    due = said.acked + said.derived
    if due != stored:
        yield f"it counts {due} events, but the log has {stored}"
    for name, counts in said.destinations.items():
        parts = (counts.delivered, counts.waiting, counts.dead, sum(counts.lost.values()))
        if sum(parts) != due:
            yield f"{name}: {' + '.join(map(str, parts))} are {sum(parts)} of {due} events"
    for one in owed:
        was_there = one.since_ms + _KNOWN_MS < stated_at_ms
        if one.stream == said.stream and was_there and one.name not in said.destinations:
            yield f"{one.name} was due, but has no line"


def _unaccounted(recorded: WorldRecord, taken: Mapping[str, AbstractSet[str]]) -> Iterator[Finding]:
    for owed in recorded.owed:
        acked = recorded.acked.get((owed.tenant, owed.stream), frozenset())
        # Events that are not even stored are already reported.
        stored = acked & set(recorded.log.get(owed.stream, {}).values())
        wanted = {one for one in stored if owed.wants in {"", EventId.read(one).kind}}
        for place in (taken, recorded.waiting, recorded.dead, recorded.queued):
            wanted -= place.get(owed.id, frozenset())
        if wanted:
            yield Finding("unaccounted", f"{owed.id} neither has nor will get {_some(wanted)}")


def _strangers(recorded: WorldRecord) -> Iterator[Finding]:
    foreign: dict[str, set[str]] = defaultdict(set)
    unknown: dict[str, set[str]] = defaultdict(set)
    for arrival in recorded.arrivals:
        if arrival.event_id not in recorded.sent:
            unknown[arrival.destination_id].add(arrival.event_id)
            continue
        event = EventId.read(arrival.event_id)
        stream = arrival.destination_id.partition("/")[0]
        if (event.tenant, event.stream) != (arrival.tenant, stream):
            foreign[f"{arrival.tenant}'s {arrival.destination_id}"].add(arrival.event_id)
    for where, ids in foreign.items():
        yield Finding("foreign", f"{where} was sent another's events: {_some(ids)}")
    for where, ids in unknown.items():
        yield Finding("unsent", f"{where} was sent events that nobody posted: {_some(ids)}")


def _false_receipts(
    recorded: WorldRecord, taken: Mapping[str, AbstractSet[str]]
) -> Iterator[Finding]:
    lacking: dict[str, set[str]] = defaultdict(set)
    for claim in recorded.claims:
        log = recorded.log.get(claim.destination_id.partition("/")[0], {})
        for partition, first, end in claim.covered:
            for offset in range(first, end):
                event_id = log.get((partition, offset), f"{partition}:{offset}, not in the log")
                if event_id not in taken.get(claim.destination_id, frozenset()):
                    lacking[claim.destination_id].add(event_id)
    for destination_id, ids in lacking.items():
        yield Finding(
            "false receipt",
            f"{destination_id} never had these, which a receipt calls delivered: {_some(ids)}",
        )


def _unlabelled(recorded: WorldRecord) -> Iterator[Finding]:
    copies = _copies(recorded)
    plain = Counter(
        (arrival.destination_id, arrival.event_id)
        for arrival in recorded.arrivals
        if not arrival.is_labelled
    )
    repeated: dict[str, set[str]] = defaultdict(set)
    for (destination_id, event_id), count in plain.items():
        # A sender without an answer sends again, so the event is stored twice, unlabelled.
        if count > max(copies[event_id], 1):
            repeated[destination_id].add(event_id)
    for destination_id, ids in repeated.items():
        yield Finding(
            "unlabelled", f"{destination_id} had these again without a label: {_some(ids)}"
        )


def _copies(recorded: WorldRecord) -> Counter[str]:
    return Counter(event_id for log in recorded.log.values() for event_id in log.values())


def _early(recorded: WorldRecord) -> Iterator[Finding]:
    copies = _copies(recorded)
    early: dict[str, set[str]] = defaultdict(set)
    for arrival in recorded.early:
        # A second copy may leave before the answer to the first one comes.
        if copies[arrival.event_id] == 1:
            early[arrival.destination_id].add(arrival.event_id)
    for destination_id, ids in early.items():
        yield Finding("early", f"{destination_id} had these before Retry-After: {_some(ids)}")


def _deaths(recorded: WorldRecord) -> Iterator[Finding]:
    for death in recorded.deaths:
        if not death.reason:
            yield Finding("death", f"{death.name} {death.how}, and its log gives no reason")
        elif not death.is_excused:
            yield Finding(
                "death", f"{death.name} {death.how}, though nothing was wrong: {death.reason}"
            )


def _memory(recorded: WorldRecord) -> Iterator[Finding]:
    for kind, peak_mb in recorded.peaks_mb.items():
        if peak_mb > recorded.bounds_mb[kind]:
            bound_mb = recorded.bounds_mb[kind]
            yield Finding("memory", f"{kind} took {peak_mb} MB; the limit is {bound_mb} MB")


def _some(ids: Iterable[str]) -> str:
    listed = sorted(ids)
    more = f" and {len(listed) - _NAMED_MAX} more" if len(listed) > _NAMED_MAX else ""
    return ", ".join(listed[:_NAMED_MAX]) + more
