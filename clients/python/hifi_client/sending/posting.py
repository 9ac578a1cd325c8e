"""Posts batches until each of their events has a fate, according to the gateway's contract."""

import hashlib
import hmac
import json
import logging
import secrets
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hifi_client.errors import NoAnswerError
from hifi_client.sending.answers import Reading, Verdict, read_answer
from hifi_client.sending.buffer import Batch, Buffer
from hifi_client.sending.connection import Answer, Connection, Target
from hifi_client.sending.events import id_of
from hifi_client.sending.fates import Fate, Outcome
from hifi_client.sending.pace import Pace
from hifi_client.sending.packing import packed, packer

if TYPE_CHECKING:
    from hifi_client.sending.sender import Options

log = logging.getLogger("hifi_client")

_JOIN_S = 1.0
_SIGNED = b"hifi request signature v1"
_REHEARSED = b'{"id":"rehearsal"}'


class Poster:
    """Gets the fates of one batch at a time. Each thread has its own connection."""

    def __init__(self, target: Target, stream: str, key: str | None, options: "Options") -> None:
        self.target, self.options = target, options
        self.pace = Pace()
        self._path = f"/v1/streams/{stream}/events"
        self._pack = packer(options.compression)
        self._headers = {"content-type": "application/x-ndjson", "accept": "application/json"}
        if key is not None:
            self._headers["authorization"] = f"Bearer {key}"
        # Sign with a key derived from the API key, so that knowing the API key's hash, which the
        # gateway stores, is not enough to sign.
        self._signing_key = (
            hmac.new(key.encode(), _SIGNED, hashlib.sha256).hexdigest().encode()
            if key is not None and options.is_signing
            else None
        )

    def connect(self) -> Connection:
        return Connection(self.target, timeout_s=self.options.timeout_s)

    def rehearse(self) -> str:
        """Return why an event would fail, in a sentence; empty if it would not."""
        connection = self.connect()
        try:
            answer = self._exchange(connection, _REHEARSED, query="?dry_run=true")
        except NoAnswerError as error:
            return str(error)
        finally:
            connection.close()
        try:
            said = json.loads(answer.body)
        except ValueError:
            said = None
        if answer.status == 200 and isinstance(said, dict) and said.get("dry_run") is True:  # noqa: PLR2004
            return ""
        return self._about(read_answer(answer.status, answer.headers, answer.body, 1))

    def post(
        self, connection: Connection, batch: Batch, *, gives_up: bool, request_key: str | None
    ) -> list[tuple[int, Verdict]] | None:
        """Try until every event has its fate, and report the fates; return the refused events.

        With `gives_up`, give up after `give_up_s`, at the sender's end, and at a problem that
        needs a person. Otherwise go on until the sender's end; return None if not done by then.
        """
        refused: list[tuple[int, Verdict]] = []
        waiting = [(batch, request_key, False)]
        until_s = batch.born_s + self.options.give_up_s if gives_up else None
        while waiting:
            part, part_key, may_be_stored = waiting.pop()
            last: Reading | None = None
            while self.pace.wait(until_s=until_s):
                reading = last = self._attempt(connection, part, part_key)
                may_be_stored |= reading.may_be_stored
                if reading.is_to_be_halved and part.count > 1:
                    middle = part.count // 2
                    halves = range(middle, part.count), range(middle)
                    waiting += [(part.part(half), self.new_key(), may_be_stored) for half in halves]
                    break
                if reading.is_setup and gives_up:
                    self._give_up(part, reading, may_be_stored=may_be_stored)
                    break
                if not reading.again:
                    refused += self._tell(part, reading)
                    break
                # An Idempotency-Key is for one request, so with a key the batch must stay whole.
                if len(reading.again) < part.count and part_key is None:
                    refused += self._tell(part, reading)
                    part = part.part(reading.again)
            else:
                if not gives_up:
                    return None
                self._give_up(part, last, may_be_stored=may_be_stored)
        return refused

    def new_key(self) -> str | None:
        return secrets.token_hex(16) if self.options.is_idempotent else None

    def _attempt(self, connection: Connection, part: Batch, request_key: str | None) -> Reading:
        """Send one request, and return what its answer means for each event."""
        count = part.count
        more = {} if request_key is None else {"idempotency-key": f'"{request_key}"'}
        try:
            answer = self._exchange(connection, part.body, more)
        except NoAnswerError as error:
            reading = Reading(
                again=tuple(range(count)), may_be_stored=not error.is_unsent, problem=str(error)
            )
        else:
            reading = read_answer(answer.status, answer.headers, answer.body, count)
        if not reading.again:
            # Any answer proves that the gateway works, whatever the fate of these events.
            self.pace.went_well()
            return reading
        about = self._about(reading)
        if self.pace.failed(about, wait_s=reading.wait_s, is_setup=reading.is_setup):
            log.warning("%s", about)
        return reading

    def _exchange(
        self,
        connection: Connection,
        body: bytes,
        more: Mapping[str, str] | None = None,
        *,
        query: str = "",
    ) -> Answer:
        small, is_packed = packed(body, self._pack)
        headers = {**self._headers, **(more or {})}
        if is_packed:
            headers["content-encoding"] = str(self.options.compression)
        if self._signing_key is not None:
            now_s = str(int(time.time()))
            signed = hmac.new(self._signing_key, now_s.encode() + b"." + small, hashlib.sha256)
            headers["hifi-signature"] = f"t={now_s},v1={signed.hexdigest()}"
        return connection.post(self._path + query, headers, small)

    def _about(self, reading: Reading) -> str:
        url = self.target.url
        return reading.problem if url in reading.problem else f"{url}: {reading.problem}"

    def _tell(self, part: Batch, reading: Reading) -> list[tuple[int, Verdict]]:
        """Report final outcomes; return the refused events by their place in the batch."""
        count = part.count
        verdicts, again = dict(reading.final), frozenset(reading.again)
        if reading.is_to_be_halved:
            assert count == 1, "a batch of several events would have been halved"
            verdicts = {0: Verdict(Fate.REJECTED, reading.code, self._about(reading))}
        if not verdicts and not again and part.places is None:
            self._say_accepted(part)
            part.fates.all_accepted()
            return []
        outcomes = {part.place(nth): self._outcome(part, nth, one) for nth, one in verdicts.items()}
        for nth, line in enumerate(part.lines):
            if nth not in verdicts and nth not in again:
                outcomes[part.place(nth)] = Outcome(id_of(line), Fate.ACCEPTED)
        part.fates.tell(outcomes)
        self._say(outcomes)
        return [(part.place(nth), verdict) for nth, verdict in verdicts.items()]

    def give_up(self, part: Batch, fate: Fate, reason: str) -> None:
        """Give this fate to all events without one."""
        self._tell_all(part, Verdict(fate, reason=reason))

    def _give_up(self, part: Batch, last: Reading | None, *, may_be_stored: bool) -> None:
        if last is not None and not last.is_setup and len(last.again) < part.count:
            self._tell(part, last)
            part = part.part(last.again)
        reason = self.pace.problem if last is None else self._about(last)
        fate = Fate.UNKNOWN if may_be_stored else Fate.NOT_STORED
        if last is not None and last.is_setup and not may_be_stored:
            fate = Fate.REJECTED
        code = "" if last is None else last.code
        self._tell_all(part, Verdict(fate, code, reason or "The sender was closed."))

    def _tell_all(self, part: Batch, verdict: Verdict) -> None:
        outcomes = {
            part.place(nth): self._outcome(part, nth, verdict)
            for nth in range(part.count)
            if part.fates.outcome(part.place(nth), "") is None
        }
        part.fates.tell(outcomes)
        self._say(outcomes)

    def _outcome(self, part: Batch, nth: int, verdict: Verdict) -> Outcome:
        name = id_of(part.lines[nth])
        return Outcome(name, verdict.fate, verdict.code, verdict.reason, verdict.pointer)

    def _say_accepted(self, part: Batch) -> None:
        if self.options.on_outcome is not None:
            lines = enumerate(part.lines)
            self._say({nth: Outcome(id_of(line), Fate.ACCEPTED) for nth, line in lines})

    def _say(self, outcomes: Mapping[int, Outcome]) -> None:
        if self.options.on_outcome is None:
            return
        for outcome in outcomes.values():
            try:
                self.options.on_outcome(outcome)
            except Exception:
                log.exception("on_outcome failed for the event %s.", outcome.id)


class Posts:
    """The threads that post batches from memory."""

    # Whether events that are unsent at the end are safe on disk.
    may_leave = False

    def __init__(self, poster: Poster, buffer: Buffer) -> None:
        self.poster, self.buffer = poster, buffer
        self.threads = [
            threading.Thread(target=self._run, name=f"hifi-sender-{nth}", daemon=True)
            for nth in range(poster.options.parallel_max)
        ]
        for thread in self.threads:
            thread.start()

    @property
    def is_idle(self) -> bool:
        return True

    def stop(self) -> None:
        """End all batches in flight; events without a fate get one."""
        self.poster.pace.end()
        until_s = time.monotonic() + _JOIN_S
        for thread in self.threads:
            thread.join(max(0.0, until_s - time.monotonic()))

    def abandon(self) -> None:
        """Release what a forked child must not keep."""

    def _run(self) -> None:
        connection = self.poster.connect()
        try:
            while (batch := self.buffer.take()) is not None:
                try:
                    key = self.poster.new_key()
                    self.poster.post(connection, batch, gives_up=True, request_key=key)
                except Exception as error:
                    # After a bug here or in the caller's callback, the other batches continue.
                    log.exception("A batch of %d events was not sent.", batch.count)
                    reason = f"The sender failed: {error!r}."
                    self.poster.give_up(batch, Fate.UNKNOWN, reason)
                finally:
                    self.buffer.release(batch.charged_bytes)
        finally:
            connection.close()
