"""Compares the answers that senders got for their events with Kafka's log."""

import asyncio
import contextlib
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from io import BytesIO
from time import monotonic
from typing import Any

import pytest

from gateway.publish.produce_request import ProduceAnswer, SendBatches
from gateway.publish.report import Fate
from tests.support.kafka.kafka_log import read_all

UNTRUTHS = ("200, not in the log", "not stored, in the log", "written after its 504", "twice")
AFTER_APPEND = " after the append"
_EVENT_ID = re.compile(rb'"id":"(\w+)"')
_FATES = {"retry": Fate.NOT_STORED, "unknown": Fate.UNKNOWN}


def body_of(ids: Sequence[str]) -> bytes:
    return json.dumps([{"id": each} for each in ids], separators=(",", ":")).encode()


async def ids_in_log(servers: str, topic: str) -> Counter[str]:
    values = [record.value or b"" for record in await read_all(servers, topic)]
    return Counter(found.decode() for value in values for found in _EVENT_ID.findall(value))


@dataclass
class Wire:
    """The events that a gateway in this process writes to brokers, and the brokers' answers."""

    written_at_s: dict[str, float] = field(default_factory=dict)
    # By error code, marked if an offset came with it: the broker had then appended the batch.
    answers: Counter[str] = field(default_factory=Counter)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        encode, decode = SendBatches.encode, ProduceAnswer.decode

        def write(request: SendBatches) -> object:
            encoded = encode(request)
            for part in encoded.parts:
                for found in _EVENT_ID.findall(part):
                    self.written_at_s[found.decode()] = monotonic()
            return encoded

        def read(answer: BytesIO) -> ProduceAnswer:
            found = decode(answer)
            for code, offset in found.values():
                self.answers[f"{code}{AFTER_APPEND if code and offset >= 0 else ''}"] += 1
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SendBatches, "encode", write)
            patch.setattr(ProduceAnswer, "decode", read)
            yield


@dataclass
class SenderAnswers:
    """The fate of each event in the answer to its sender, and the time of the answer."""

    fates: dict[str, tuple[Fate, float]] = field(default_factory=dict)

    def tell(self, event_id: str, fate: Fate) -> None:
        self.fates[event_id] = fate, monotonic()

    def counted(self, in_log: Counter[str], wire: Wire) -> Counter[str]:
        found = Counter(dict.fromkeys(UNTRUTHS, 0))
        for event_id, (fate, told_s) in self.fates.items():
            is_there = event_id in in_log
            is_late = wire.written_at_s.get(event_id, 0.0) > told_s
            found[fate.name] += 1
            found["200, not in the log"] += fate is Fate.STORED and not is_there
            found["not stored, in the log"] += fate is Fate.NOT_STORED and is_there
            found["unknown, in the log"] += fate is Fate.UNKNOWN and is_there
            found["written after its 504"] += fate is Fate.UNKNOWN and is_late
        found["twice"] = sum(count > 1 for count in in_log.values())
        return found


@dataclass
class Sender:
    """Posts to a gateway again and again over one connection, with new events each time."""

    name: str
    size: int
    told: SenderAnswers
    rng: random.Random
    pause_s: float
    _count: int = 0

    async def run(self, port: int, stream: str, stop: asyncio.Event) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while not stop.is_set():
                ids = [f"{self.name}x{self._count + n}" for n in range(self.size)]
                self._count += self.size
                body = body_of(ids)
                head = (
                    f"POST /v1/streams/{stream}/events HTTP/1.1\r\nhost: localhost\r\n"
                    f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
                )
                writer.write(head.encode() + body)
                self._hear(ids, *await _answer(reader))
                await asyncio.sleep(self.rng.uniform(0, 2 * self.pause_s))
        finally:
            writer.close()

    def _hear(self, ids: Sequence[str], status: int, answer: dict[str, Any]) -> None:
        if "results" in answer:
            fates = dict.fromkeys(ids, Fate.STORED)
            fates |= {ids[one["index"]]: _FATES[one["status"]] for one in answer["results"]}
        else:
            all_alike = {
                HTTPStatus.OK: Fate.STORED,
                HTTPStatus.SERVICE_UNAVAILABLE: Fate.NOT_STORED,
            }
            fates = dict.fromkeys(ids, all_alike[HTTPStatus(status)])
        for event_id, fate in fates.items():
            self.told.tell(event_id, fate)


async def _answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    async with asyncio.timeout(60):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        (length,) = re.findall(r"content-length: (\d+)", head, re.IGNORECASE)
        return int(head.split()[1]), json.loads(await reader.readexactly(int(length)))
