"""Writes batches to the spool before they are posted, and posts them from there."""

import hashlib
import logging
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

from hifi_client.errors import SpoolFullError
from hifi_client.sending.buffer import Batch, Buffer
from hifi_client.sending.connection import Connection
from hifi_client.sending.fates import Fate, Fates
from hifi_client.sending.posting import Poster, Posts
from hifi_client.spooling.segment import Frame, Place
from hifi_client.spooling.spool import Spool

log = logging.getLogger("hifi_client")

_LOOK_S = 0.5
# Batches that are written with one fsync.
_TOGETHER_MAX = 16


class SpooledPosts(Posts):
    """One thread that writes to disk, and others that post from there."""

    may_leave = True

    def __init__(self, poster: Poster, buffer: Buffer, folder: Path, stream: str) -> None:
        self._spool = Spool(folder, stream=stream, bytes_max=poster.options.spool_bytes_max)
        # Fates of batches on disk, kept only while a caller holds one of their events or waits for
        # a callback: other fates must not take memory while the gateway is down.
        self._fates: weakref.WeakValueDictionary[Place, Fates] = weakref.WeakValueDictionary()
        self._is_ending = False
        self._writer = threading.Thread(target=self._write_all, name="hifi-spool", daemon=True)
        super().__init__(poster, buffer)
        self._writer.start()

    @property
    def is_idle(self) -> bool:
        return self._spool.is_empty()

    def stop(self) -> None:
        self._is_ending = True
        self._writer.join(self.poster.options.timeout_s)
        self._spool.end()
        super().stop()
        self._spool.close()
        for fates in list(self._fates.values()):
            fates.all_left()

    def abandon(self) -> None:
        self._spool.abandon()

    def _write_all(self) -> None:
        while (first := self.buffer.take()) is not None:
            batches = [first]
            while len(batches) < _TOGETHER_MAX:
                batch = self.buffer.take(timeout_s=0)
                if batch is None:
                    break
                batches.append(batch)
            self._write(batches)

    def _write(self, batches: list[Batch]) -> None:
        bodies = [batch.body for batch in batches]

        def written(places: list[Place]) -> None:
            self._fates.update(zip(places, (batch.fates for batch in batches), strict=True))

        while True:
            try:
                self._spool.append(bodies, written)
                break
            except SpoolFullError as error:
                if self.poster.pace.note(str(error)):
                    log.warning("%s", error)
                if self._is_ending:
                    for batch in batches:
                        self.poster.give_up(batch, Fate.NOT_STORED, str(error))
                        self.buffer.release(batch.charged_bytes)
                    return
                self._spool.wait_for_room(_LOOK_S)
        for batch in batches:
            batch.fates.all_spooled()
            self.buffer.release(batch.charged_bytes)

    def _run(self) -> None:
        connection = self.poster.connect()
        try:
            while not self.poster.pace.is_ended:
                try:
                    frame = self._spool.take(timeout_s=_LOOK_S)
                except OSError as error:
                    # Damaged bytes cannot be kept aside yet: the disk may have room later.
                    self._wait_for_disk(f"The spool cannot be read on ({error}).")
                    continue
                if frame is not None:
                    self._post(connection, frame)
        finally:
            connection.close()

    def _post(self, connection: Connection, frame: Frame) -> None:
        fates = self._fates.get(frame.place) or Fates()
        batch = Batch.of_body(frame.body, fates, born_s=time.monotonic())
        # The same batch gets the same key, even from the next process.
        is_idempotent = self.poster.options.is_idempotent
        key = hashlib.sha256(frame.body).hexdigest()[:32] if is_idempotent else None
        try:
            refused = self.poster.post(connection, batch, gives_up=False, request_key=key)
            if refused is None:
                return
            if refused:
                lines = batch.lines
                named = [(lines[nth], verdict.code, verdict.reason) for nth, verdict in refused]
                if not self._set_aside(named):
                    return
        except Exception:
            # No other batch may wait for this one until the process ends.
            log.exception("A batch of %d events was not sent; it is tried again.", batch.count)
            self._spool.wait_for_room(_LOOK_S)
            self._spool.give_back(frame)
            return
        self._spool.done(frame.place)

    def _set_aside(self, refused: Sequence[tuple[bytes, str, str]]) -> bool:
        """Keep refused events once the disk has room; return False if the sender ends first."""
        while not self.poster.pace.is_ended:
            try:
                self._spool.set_aside(refused)
            except SpoolFullError as error:
                self._wait_for_disk(str(error))
            else:
                return True
        return False

    def _wait_for_disk(self, problem: str) -> None:
        if self.poster.pace.note(problem):
            log.warning("%s", problem)
        self._spool.wait_for_room(_LOOK_S)
