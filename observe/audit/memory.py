"""The audit's memory between runs, saved as bytes that outlive its process and its machine.

If the bytes cannot be read, the audit starts again with everything that Kafka still has.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping

import msgspec
import structlog
from msgspec import Struct, field

from observe.audit.books import AuditBooks
from observe.audit.ledger import number_of
from shared.event.topics import STATEMENTS, stream_topic
from shared.proof.intervals import Offsets
from shared.proof.statement import Counts, SignedStatement

log = structlog.get_logger()

# The maximum number of spans of minutes with statements; a stream with events in every minute has
# one span.
_SPANS_MAX = 1_000


class StatedMinute(Struct):
    """The facts about a minute's ids and about its newest statement."""

    # 0: there is no statement yet; the first one will cover these ids.
    revision: int
    acked: int
    id_count: int
    root: str
    # A digest of the statement's counts, as a stream with many destinations has many counts.
    said: str = ""
    # The number of its events that were found in the log.
    compared: int = 0


class Memory(Struct, forbid_unknown_fields=True):
    """The audit's memory; if it has unknown fields of another version, it is refused."""

    books: AuditBooks = field(default_factory=AuditBooks)
    # The offset up to which records were read: by kind, topic and Kafka partition.
    read: dict[tuple[str, str, int], int] = {}
    # By topic and minute.
    stated: dict[tuple[str, int], StatedMinute] = {}
    # The digest of each stream's newest statement, by topic.
    chain: dict[str, str] = {}
    # By topic: the numbers of all minutes that ever had a statement.
    ever: dict[str, Offsets] = {}
    # Records that could not be read: time, kind, number.
    unreadable: list[tuple[int, str, int]] = []

    @classmethod
    def from_bytes(cls, saved: bytes | None) -> "Memory":
        """Return the saved memory; an empty one if there is none, or if it cannot be read."""
        if saved is None:
            return cls()
        try:
            return msgspec.msgpack.decode(saved, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            log.warning("audit.memory_unreadable", error=str(error)[:300])
            return cls()

    def to_bytes(self) -> bytes:
        """Return the memory as MessagePack, as JSON has no keys of several parts."""
        return msgspec.msgpack.encode(self)

    def unreadable_in_words(self) -> str:
        """Describe unreadable records to people; empty if everything could be read."""
        counts: Counter[str] = Counter()
        for _, kind, count in self.unreadable:
            counts[kind] += count
        if not counts:
            return ""
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
        return f"records of the last day could not be read, so they prove nothing: {kinds}"

    def note_stated(self, topic: str, minute_ms: int) -> None:
        """Note that a minute has a statement; this stays when its other facts are dropped."""
        number = number_of(minute_ms)
        stated = self.ever.setdefault(topic, Offsets())
        stated.add(number, number + 1)
        if len(spans := list(stated)) > _SPANS_MAX:
            # Join the two oldest spans, as if the minutes in between had statements.
            stated.add(spans[0][1], spans[1][0])

    def is_forgotten(self, topic: str, minute_ms: int) -> bool:
        """Return whether a minute has a statement whose content is no longer known."""
        is_known = (topic, minute_ms) in self.stated
        return not is_known and number_of(minute_ms) in self.ever.get(topic, ())

    @property
    def statements_read(self) -> int:
        """The offset up to which the statements in Kafka are known."""
        return self.read.get(_STATEMENTS, 0)

    def read_statement(self, signed: SignedStatement, offset: int) -> None:
        """Take note of a statement in Kafka that the saved memory may not have.

        The audit publishes a statement first and saves its memory afterwards; the machine may die
        in between. Without this method the next statement would name a wrong predecessor, and the
        chain would stay broken.
        """
        statement = signed.statement
        topic = stream_topic(statement.stream)
        self.read[_STATEMENTS] = offset + 1
        self.chain[topic] = statement.digest
        self.note_stated(topic, statement.minute_ms)
        count, compared = statement.event_count, statement.compared or 0
        self.stated[topic, statement.minute_ms] = StatedMinute(
            statement.revision,
            count,
            statement.id_count,
            statement.root,
            digest_of(count, compared, statement.root, statement.destinations),
            compared,
        )


# Older releases did not note which minutes had statements: this new name makes an audit read all
# statements once more.
_STATEMENTS = ("stated", STATEMENTS, 0)


def digest_of(acked: int, compared: int, root: str, destinations: Mapping[str, Counts]) -> str:
    """Return the digest of a statement's content."""
    content = msgspec.json.encode((acked, compared, root, destinations), order="sorted")
    return hashlib.sha256(content).hexdigest()
