"""Writes the records that send one event again to destinations of its stream."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from gateway.control.stores.redrive import DeadLetterStore
from gateway.problems import Problem
from shared.event.envelope import Envelope
from shared.event.record import RecordOut
from shared.event.topics import OUTCOME_BYTES_MAX
from shared.retry.dead_letter import DeadLetterFilter, Place, redriven_rows
from shared.retry.resend import resent_rows
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.only_writer import OvertakenError, only_writer, rows_of


@dataclass(frozen=True, slots=True)
class Resend:
    """An event to send again, and its destinations."""

    resend_id: str
    event: Envelope
    # Destinations that it was delivered to.
    taken: tuple[str, ...] = ()
    # Destinations that it was given up for, each with its dead letter's place.
    dead: tuple[tuple[str, Place], ...] = ()
    # The restore that has put it back, if any.
    restore_id: str = ""


class Resends:
    """Sends events again through the Kafka that the gateway runs with."""

    def __init__(
        self, bootstrap_servers: str, letters: DeadLetterStore, *, schedule: RetrySchedule
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._letters = letters
        self._schedule = schedule

    async def send(self, wanted: Resend) -> list[str]:
        """Send the event; return its destinations. Raise Problem if another resend overtook this.

        Each destination has its own transaction, so that memory holds only one copy of the event.
        The transactions' name differs from that of the stream's redrives, so running redrives
        continue. A later resend sees the marks of all earlier ones.
        """
        try:
            return await self._send(wanted)
        except OvertakenError as error:
            detail = "Another event of this stream is being resent: ask again."
            soon = ((b"retry-after", b"1"),)
            raise Problem("redrive_overtaken", detail, headers=soon) from error

    async def _send(self, wanted: Resend) -> list[str]:
        sent = list[str]()
        async with only_writer(
            self._bootstrap_servers,
            f"hifi-resend-{wanted.event.stream}",
            max_request_size=OUTCOME_BYTES_MAX,
        ) as write:
            async for destination_id, records in self._records(wanted):
                if records:
                    await write(rows_of(records))
                    sent.append(destination_id)
        return sent

    async def _records(self, wanted: Resend) -> AsyncIterator[tuple[str, list[RecordOut]]]:
        """Yield the records for each destination, after the previous ones have been written."""
        for destination_id in wanted.taken:
            yield (
                destination_id,
                resent_rows(
                    wanted.event,
                    destination_id,
                    schedule=self._schedule,
                    resend_id=wanted.resend_id,
                    restore_id=wanted.restore_id,
                    now_ms=now_ms(),
                ),
            )
        for destination_id, place in wanted.dead:
            yield destination_id, await self._out_of_dead_letters(wanted, destination_id, place)

    async def _out_of_dead_letters(
        self, wanted: Resend, destination_id: str, place: Place
    ) -> list[RecordOut]:
        """Return the records that redrive the letter; none if it was sent again or is gone."""
        asked = DeadLetterFilter(
            stream=wanted.event.stream,
            destination=destination_id,
            event_id=wanted.event.event_id,
        )
        page, marked = await self._letters.page(asked, after=place, count_max=1, keeps_values=True)
        letters = [
            letter
            for letter in page.letters
            if letter.place == place and place not in marked and letter.can_be_redriven
        ]
        return redriven_rows(
            letters, schedule=self._schedule, redrive_id=wanted.resend_id, now_ms=now_ms()
        )
