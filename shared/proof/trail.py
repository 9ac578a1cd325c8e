"""Follows some events after they were stored, through receipts, tiers and dead letters.

The reader passes in every record that it reads; records of other events are ignored.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from shared.event.envelope import ORIGIN_TOPIC, Envelope, MalformedRecord, open_retry_record
from shared.event.record import KafkaPartition, Origin, RecordIn
from shared.proof.intervals import Offsets
from shared.proof.receipt import Receipt, ReceiptOutcome, receipts_of


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """A record in a retry tier or in dead letters: its event, its place, and when it was stored."""

    # Without the event's bytes: there may be thousands of them.
    envelope: Envelope
    place: Origin
    stored_at_ms: int
    headers: Mapping[str, bytes]


@dataclass(slots=True)
class Trail:
    """All records about some events. Made by `Trail.of`."""

    # The offsets of the events, by Kafka partition of their streams.
    wanted: Mapping[KafkaPartition, Offsets]
    receipts: list[Receipt] = field(default_factory=list)
    retries: list[KeptRecord] = field(default_factory=list)
    dead: list[KeptRecord] = field(default_factory=list)
    # False: there was more to read than the time allowed.
    is_whole: bool = True
    # Each destination has reported a final outcome; later records were not looked for.
    ends_there: bool = False
    _delivered: dict[tuple[str, KafkaPartition], Offsets] = field(default_factory=dict)
    _told_of: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, origins: Iterable[Origin]) -> "Trail":
        wanted: dict[KafkaPartition, Offsets] = {}
        for origin in origins:
            offsets = wanted.setdefault(origin.log, Offsets())
            offsets.add(origin.offset, origin.offset + 1)
        return cls(wanted)

    def take_sheet(self, record: RecordIn) -> None:
        """Take the receipts of a record."""
        if not any(topic.encode() in record.value for topic, _ in self.wanted):
            return
        for receipt in filter(None, receipts_of(record.value)):
            named = list(self.named(receipt))
            if not named:
                continue
            self.receipts.append(receipt)
            self._told_of.add(receipt.destination_id)
            if receipt.outcome is _DELIVERED:
                for where, first, end in named:
                    key = (receipt.destination_id, where)
                    self._delivered.setdefault(key, Offsets()).add(first, end)

    def take_retry(self, record: RecordIn) -> None:
        self.retries += self._opened(record)

    def take_dead(self, record: RecordIn) -> None:
        self.dead += self._opened(record)

    def named(self, receipt: Receipt) -> Iterable[tuple[KafkaPartition, int, int]]:
        """(Kafka partition, first, end) of the wanted events that a receipt is about."""
        for covered in receipt.covered:
            where = KafkaPartition(covered.topic, covered.partition)
            for first, end in self.wanted.get(where, _NONE).within(covered.first, covered.end):
                yield where, first, end

    def is_delivered_to(self, destination_ids: Iterable[str]) -> bool:
        """Whether each destination has every event, so that no more records can come.

        A destination with a receipt also counts: it may no longer be configured.
        """
        return all(
            len(self._delivered.get((destination_id, where), _NONE)) == len(offsets)
            for destination_id in {*destination_ids, *self._told_of}
            for where, offsets in self.wanted.items()
        )

    def has_ended_at(self, destination_ids: Collection[str]) -> bool:
        """For one event: whether each destination has it, or has given it up."""
        ended = {each.destination_id for each in self.receipts if each.outcome is not _WAITING}
        return bool(destination_ids) and ended >= {*destination_ids, *self._told_of}

    def has_kept(self) -> bool:
        """For one event: whether there is a record for each time that it was not delivered."""
        counts = Counter(each.outcome for each in self.receipts)
        return len(self.retries) >= counts[_WAITING] and len(self.dead) >= counts[_DEAD]

    @property
    def first_trouble_ms(self) -> int | None:
        """When the delivery of an event first failed; before that, none was kept elsewhere."""
        times = (r.started_at_ms for r in self.receipts if r.outcome is not _DELIVERED)
        return min(times, default=None)

    def _opened(self, record: RecordIn) -> Iterable[KeptRecord]:
        headers = dict(record.headers)
        if not any(headers.get(ORIGIN_TOPIC) == topic.encode() for topic, _ in self.wanted):
            return
        opened = open_retry_record(replace(record, value=b""))
        if isinstance(opened, MalformedRecord):
            return
        origin = opened.origin
        if origin.offset in self.wanted.get(origin.log, _NONE):
            yield KeptRecord(opened, record.origin, record.timestamp_ms, headers)


_NONE = Offsets()
_DELIVERED, _WAITING = ReceiptOutcome.DELIVERED, ReceiptOutcome.WAITING
_DEAD = ReceiptOutcome.DEAD
