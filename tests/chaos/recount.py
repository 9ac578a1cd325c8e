"""Counts the books of a chaos run again, from what senders, destinations and Kafka's log say.

Pure, and without the product's own arithmetic: every acknowledged id is with each destination that
it was owed to, or waits, or is dead, or the lane has not come to it. Each arrival was owed, each
event that counts as delivered was received, and nobody died without a word.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from shared.proof.statement import Statement

# At most this many ids are named for a finding; more where they were not signed, to show why.
_NAMED_MAX = 5
_UNSIGNED_MAX = 40
# A running audit does not know newer destinations, and takes this long on a busy machine.
_KNOWN_MS = 60_000


class EventId(NamedTuple):
    """The parts of an event id of a chaos run; written as `tenant.stream.kind.number`."""

    tenant: str
    stream: str
    # One letter, which filters go by.
    kind: str

    @classmethod
    def read(cls, text: str) -> "EventId":
        tenant, stream, kind, _ = text.split(".")
        return cls(tenant, stream, kind)


@dataclass(frozen=True, slots=True)
class OwedDestination:
    """A destination that there is, to which all of its stream is owed."""

    tenant: str
    stream: str
    name: str
    # The only kind that its filter lets through; empty for all.
    wants: str = ""
    # Since when it is there.
    since_ms: int = 0

    @property
    def id(self) -> str:
        return f"{self.stream}/{self.name}"


class Arrival(NamedTuple):
    """An event that a destination has taken, whether or not its answer came through."""

    tenant: str
    destination_id: str
    event_id: str
    is_labelled: bool


class Claim(NamedTuple):
    """A receipt that says `delivered`: of these events, by Kafka partition and offsets."""

    destination_id: str
    # First and end of consecutive offsets.
    covered: tuple[tuple[int, int, int], ...]


class Death(NamedTuple):
    """The end of a process that nobody asked for."""

    name: str
    how: str
    # The last that its log says; empty if it is no sentence of its own.
    reason: str
    # Something that it needs was taken away at that time: Kafka, or its disk.
    is_excused: bool


@dataclass(frozen=True, slots=True)
class WorldRecord:
    """All that is known of a world at one moment."""

    # By tenant and stream.
    acked: Mapping[tuple[str, str], AbstractSet[str]]
    sent: AbstractSet[str]
    owed: Sequence[OwedDestination]
    arrivals: Sequence[Arrival]
    # The id at each Kafka partition and offset of each stream.
    log: Mapping[str, Mapping[tuple[int, int], str]]
    # Ids by destination: in a retry tier, in dead letters, not come to.
    waiting: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    dead: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    queued: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    # How often each id was sent without the answer that it is not stored.
    maybe_stored: Mapping[str, int] = field(default_factory=dict)
    deaths: Sequence[Death] = ()
    # The most memory that a process of each kind has had, and what it may have.
    peaks_mb: Mapping[str, int] = field(default_factory=dict)
    bounds_mb: Mapping[str, int] = field(default_factory=dict)
    # The faults in statements, and in the product's own books.
    statements: Sequence[str] = ()
    books: Sequence[str] = ()


class StoredId(NamedTuple):
    """An id of a minute: what it is the id of, and when Kafka stored whatever says so."""

    event_id: str
    partition: int
    offset: int
    at_ms: int


class Finding(NamedTuple):
    what: str
    says: str


def findings(recorded: WorldRecord) -> list[Finding]:
    """Return every broken promise; none in a world that is as promised."""
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
    """Say which ids of a minute in Kafka were signed, if it is those up to some moment."""
    named, stored = (sorted(ids, key=lambda one: one.at_ms) for ids in (ledger, log))
    by_ledger, by_log = ({one.event_id for one in ids} for ids in (named, stored))
    only_log = [one for one in stored if one.event_id not in by_ledger]
    only_ledger = [one for one in named if one.event_id not in by_log]
    counts = (
        f"the ledger has {len(by_ledger)} ids, the log {len(by_log)},"
        f" {len({one.event_id for one in only_log})} of them alone"
    )
    for what, whole, parts in (
        ("the ledger's and some that only the log has", by_ledger, only_log),
        ("some of the log's", frozenset[str](), stored),
        ("some of the ledger's", frozenset[str](), named),
    ):
        for count in range(len(parts) + 1):
            if is_signed(whole | {one.event_id for one in parts[:count]}):
                return f"{counts}; signed are {what}, without {_places(parts[count:])}"
    return (
        f"{counts}; signed are not those up to any moment;"
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
                "false ack", f"{tenant}'s {stream}: answered 2xx and not stored: {_some(missing)}"
            )


def _false_copies(recorded: WorldRecord) -> Iterator[Finding]:
    """Find ids that are stored after an answer that denied it, or oftener than they can be."""
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
            told = 'told "not stored", and stored'
            yield Finding("false refusal", f"{stream}: {told}: {_some(refused)}")
        if again:
            told = "stored oftener than it was sent and not refused"
            yield Finding("stored twice", f"{stream}: {told}: {_some(again)}")


def uneven_lines(
    said: Statement, stated_at_ms: int, *, stored: int, owed: Iterable[OwedDestination]
) -> Iterator[str]:
    """Yield the lines that do not add up in a statement about a minute with `stored` events."""
    due = said.acked + said.derived
    if due != stored:
        yield f"it is about {due} events, and the log has {stored}"
    for name, counts in said.destinations.items():
        parts = (counts.delivered, counts.waiting, counts.dead, sum(counts.lost.values()))
        if sum(parts) != due:
            yield f"{name}: {' + '.join(map(str, parts))} are {sum(parts)} of {due} events"
    for one in owed:
        was_there = one.since_ms + _KNOWN_MS < stated_at_ms
        if one.stream == said.stream and was_there and one.name not in said.destinations:
            yield f"{one.name} was due, and has no line"


def _unaccounted(recorded: WorldRecord, taken: Mapping[str, AbstractSet[str]]) -> Iterator[Finding]:
    for owed in recorded.owed:
        acked = recorded.acked.get((owed.tenant, owed.stream), frozenset())
        # Events that are not even stored are reported already.
        stored = acked & set(recorded.log.get(owed.stream, {}).values())
        wanted = {one for one in stored if owed.wants in {"", EventId.read(one).kind}}
        for place in (taken, recorded.waiting, recorded.dead, recorded.queued):
            wanted -= place.get(owed.id, frozenset())
        if wanted:
            yield Finding("unaccounted", f"{owed.id} neither has nor gets {_some(wanted)}")


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
        yield Finding("foreign", f"{where} was sent what is somebody else's: {_some(ids)}")
    for where, ids in unknown.items():
        yield Finding("unsent", f"{where} was sent what nobody has posted: {_some(ids)}")


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
            f"{destination_id} never had what a receipt calls delivered: {_some(ids)}",
        )


def _unlabelled(recorded: WorldRecord) -> Iterator[Finding]:
    copies = Counter(event_id for log in recorded.log.values() for event_id in log.values())
    plain = Counter(
        (arrival.destination_id, arrival.event_id)
        for arrival in recorded.arrivals
        if not arrival.is_labelled
    )
    repeated: dict[str, set[str]] = defaultdict(set)
    for (destination_id, event_id), count in plain.items():
        # A sender that sends again what it got no answer to has it stored twice, unlabelled.
        if count > max(copies[event_id], 1):
            repeated[destination_id].add(event_id)
    for destination_id, ids in repeated.items():
        yield Finding("unlabelled", f"{destination_id} had again without a label: {_some(ids)}")


def _deaths(recorded: WorldRecord) -> Iterator[Finding]:
    for death in recorded.deaths:
        if not death.reason:
            yield Finding("death", f"{death.name} {death.how} and its log does not say why")
        elif not death.is_excused:
            yield Finding("death", f"{death.name} {death.how}, with nothing amiss: {death.reason}")


def _memory(recorded: WorldRecord) -> Iterator[Finding]:
    for kind, peak_mb in recorded.peaks_mb.items():
        if peak_mb > recorded.bounds_mb[kind]:
            bound_mb = recorded.bounds_mb[kind]
            yield Finding("memory", f"{kind} took {peak_mb} MB, {bound_mb} MB at most")


def _some(ids: Iterable[str]) -> str:
    listed = sorted(ids)
    more = f" and {len(listed) - _NAMED_MAX} more" if len(listed) > _NAMED_MAX else ""
    return ", ".join(listed[:_NAMED_MAX]) + more
