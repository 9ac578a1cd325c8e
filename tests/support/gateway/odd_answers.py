"""Odd answers (cut, late, wrong, or another request's), each at an address, for all clients.

A client sends one batch of three events to each. The first answer is the odd one; later requests
are all accepted. There is no seed: the list is the same in each run.
"""

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus

EVENT_COUNT = 3
# How long a request of a tested client may take; a late answer takes twice as long.
TIMEOUT_S = 1.5
ACCEPTED, REJECTED = "accepted", "rejected"
# Statuses that refuse every event without a word about any single one.
_OF_THE_SETUP = (301, 302, 303, 304, 307, 308, 401, 403, 404, 405, 410)
_FINAL = (402, 406, 411, 412, 414, 415, 417, 418, 423, 424, 426, 428, 431, 451)
_PASSING = (
    408,
    409,
    425,
    429,
    500,
    501,
    502,
    503,
    504,
    505,
    507,
    508,
    511,
    520,
    521,
    522,
    530,
    599,
)
_OF_THE_BATCH = (400, 413, 422)
_CUTS = 4


@dataclass(frozen=True)
class Case:
    """An odd answer, and the result that it must have."""

    what: str
    # Bytes, and pauses in seconds between them.
    said: Sequence[bytes | float]
    fates: tuple[str, ...] = (ACCEPTED,) * EVENT_COUNT
    # How many requests it may take: at least, and at most.
    tries: tuple[int, int] = (2, 2)
    closes: bool = True


def _yes(count: int = EVENT_COUNT) -> bytes:
    return json.dumps({"request_id": "r", "accepted": count, "rejected": 0}).encode()


def _answer(body: bytes, status: str = "200 OK", *more: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", "content-type: application/json", *more]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


def _chunked(body: bytes, size: int, last: bytes = b"0\r\n\r\n", extension: bytes = b"") -> bytes:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return head + b"".join(b"%x%b\r\n%b\r\n" % (len(p), extension, p) for p in pieces) + last


def _good() -> Iterator[Case]:
    """Yield answers that accept the events, in one form or another."""
    whole, plain, said = (1, 1), _answer(_yes()), _yes()
    open_end = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
    forms: dict[str, list[bytes | float]] = {
        "as ever": [plain],
        "in single bytes": [plain[at : at + 1] for at in range(len(plain))],
        "with pauses": [plain[:30], 0.1, plain[30:90], 0.1, plain[90:]],
        "until the end of the connection": [open_end + said],
        "of HTTP/1.0": [b"HTTP/1.0 200 OK\r\n\r\n" + said],
        "after 100": [b"HTTP/1.1 100 Continue\r\n\r\n", plain],
        "after 103": [b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + plain],
        "without a reason": [plain.replace(b" OK", b" ", 1)],
        "with another's reason": [plain.replace(b"OK", b"Yes, of course", 1)],
        "with names in capitals": [plain.replace(b"content-length", b"CONTENT-LENGTH")],
        "without a blank": [plain.replace(b"length: ", b"length:")],
        "with blanks": [plain.replace(b"length: ", b"length: \t ")],
        "with chunks and trailers": [_chunked(said, 9, b"0\r\nx-sum: 1\r\n\r\n")],
        "with extensions of chunks": [_chunked(said, 9, extension=b";a=b")],
        "without a body": [b"HTTP/1.1 204 No Content\r\n\r\n"],
        "with 90 headers": [_answer(said, "200 OK", *(f"x-{n}: {n}" for n in range(90)))],
    }
    for what, pieces in forms.items():
        # Node treats an answer as broken if it begins with a 100 that Node has not asked for.
        yield Case(f"a yes {what}", pieces, tries=(1, 2) if what == "after 100" else whole)
    for size in (1, 2, 3, 7, 1_000):
        yield Case(f"a yes in chunks of {size}", [_chunked(said, size)], tries=whole)
    bodies = {
        "with other members": b'{"new":[1,{"x":null}],"rejected":0,"accepted":3,"request_id":"r"}',
        "with blanks": b' \n\t{ "accepted" : 3 , "rejected" : 0 } \r\n',
        "with escapes": b'{"\\u0061ccepted":3,"rejected":0}',
        "with a fraction of nothing": b'{"accepted":3.0,"rejected":0}',
    }
    for what, body in bodies.items():
        yield Case(f"a body {what}", [_answer(body)], tries=whole)


def _cut() -> Iterator[Case]:
    plain, chunks = _answer(_yes()), _chunked(_yes(), 20)
    for end in range(0, len(plain), _CUTS):
        yield Case(f"cut after {end} bytes", [plain[:end]])
    # The last line break of an answer does not matter.
    for end in range(60, len(chunks) - 4, _CUTS):
        yield Case(f"chunks cut after {end} bytes", [chunks[:end]])
    for end in (0, 1, 20, len(_yes()) - 1):
        open_end = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
        yield Case(f"cut after {end} bytes of an open end", [open_end + _yes()[:end]])


def _late() -> Iterator[Case]:
    plain, chunks = _answer(_yes()), _chunked(_yes(), 20)
    for end in (0, 5, 17, 40, len(plain) - len(_yes()), len(plain) - 1):
        yield Case(f"silent after {end} bytes", [plain[:end], 2 * TIMEOUT_S, plain[end:]])
    for end in (60, len(chunks) - 6):
        yield Case(f"chunks, silent after {end}", [chunks[:end], 2 * TIMEOUT_S, chunks[end:]])
    slow: list[bytes | float] = [b"HTTP/1.1 200 OK\r\n"]
    for nth in range(12):
        slow += [f"x-{nth}: {nth}\r\n".encode(), TIMEOUT_S / 6]
    yield Case("a header every quarter of a second", slow)


def _of_others() -> Iterator[Case]:
    page = b"<html><h1>Welcome</h1></html>"
    for status in _OF_THE_SETUP:
        said = _answer(
            page if status != HTTPStatus.NOT_MODIFIED else b"", f"{status} It", "location: /x"
        )
        yield Case(f"a page with {status}", [said], (REJECTED,) * EVENT_COUNT, (1, 1))
    for status in _FINAL:
        yield Case(
            f"a page with {status}", [_answer(page, f"{status} It")], (REJECTED,) * 3, (1, 1)
        )
    for status in _PASSING:
        yield Case(f"a page with {status}", [_answer(page, f"{status} It")])
    for status in _OF_THE_BATCH:
        yield Case(f"a page with {status}, halved", [_answer(page, f"{status} It")], tries=(3, 3))
    for status in (200, 201, 202, 203, 206, 226, 299):
        yield Case(f"a page with {status}", [_answer(page, f"{status} It")])
    for status in (201, 202, 203, 206):
        yield Case(f"our yes with {status}", [_answer(_yes(), f"{status} It")])
    bodies = [
        *(b"", b" ", b"null", b"true", b"3", b'"accepted"', b"[]", b"[[[[", b"{", b"{}", b"}"),
        *(b'{"ok":true}', b'{"accepted":"3","rejected":0}', b'{"accepted":null,"rejected":0}'),
        *(b'{"accepted":true,"rejected":0}', b'{"accepted":3.5,"rejected":0}', b'{"accepted":-3}'),
        *(b'{"accepted":2,"rejected":0}', b'{"accepted":4,"rejected":0}', b'{"accepted":[3]}'),
        *(
            b'{"accepted":3,"rejected":1}',
            b'{"accepted":3,"rejected":0}}',
            b'{"accepted":3,"reject',
        ),
        *(b'[{"accepted":3,"rejected":0}]', b'{"a":{"accepted":3,"rejected":0}}', b"\xff\xfe{}"),
        *(b"data: {}\n\n", b"accepted=3", b'{"accepted":1e400}', b'{"accepted":3,"rejected":0} x'),
    ]
    for body in bodies:
        yield Case(f"200 with {body!r}", [_answer(body)])


def _wrong() -> Iterator[Case]:
    """Yield broken HTTP: clients may believe it or not, but lose no event, and never hang."""
    said, plain = _yes(), _answer(_yes())
    length = b"content-length: %d" % len(said)
    wrong = {
        "nothing": b"",
        "a greeting": b"220 mail.example ESMTP\r\n",
        "an alert of TLS": b"\x15\x03\x01\x00\x02\x02\x46",
        "a frame of HTTP/2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + b"\x00" * 18,
        "a status of letters": plain.replace(b"200", b"abc", 1),
        "a status of one digit": plain.replace(b"200", b"2", 1),
        "HTTP/9.9": plain.replace(b"HTTP/1.1", b"HTTP/9.9", 1),
        "no version": plain.replace(b"HTTP/1.1 ", b"", 1),
        "a header without a colon": plain.replace(b"content-type:", b"content-type", 1),
        "a name with a NUL": plain.replace(b"content-type", b"content\x00type", 1),
        "a length of letters": plain.replace(length, b"content-length: many"),
        "a negative length": plain.replace(length, b"content-length: -1"),
        "two lengths": plain.replace(length, length + b"\r\ncontent-length: 2"),
        "a length of 10 EB": plain.replace(length, b"content-length: 10000000000000000000"),
        "line feeds alone": plain.replace(b"\r\n", b"\n"),
        "a length and chunks": _chunked(said, 9).replace(
            b"\r\n\r\n", b"\r\n" + length + b"\r\n\r\n", 1
        ),
        "a chunk of letters": _chunked(said, 9).replace(b"\r\n9\r\n", b"\r\nzz\r\n", 1),
        "a negative chunk": _chunked(said, 9).replace(b"\r\n9\r\n", b"\r\n-9\r\n", 1),
        "a chunk that is too short": _chunked(said, 9).replace(b"\r\n9\r\n", b"\r\n5\r\n", 1),
        "a chunk of 16 EB": _chunked(said, 9).replace(b"\r\n9\r\n", b"\r\nffffffffffffffff\r\n", 1),
        "a line of 300 KB": plain.replace(b"content-type", b"x: " + b"x" * 300_000 + b"\r\ny", 1),
        "10,000 headers": plain.replace(b"content-type", b"x: y\r\n" * 10_000 + b"y", 1),
        "an unknown coding": plain.replace(b"content-type", b"content-encoding: zebra\r\nx", 1),
        "a coding that it is not in": plain.replace(
            b"content-type", b"content-encoding: gzip\r\nx", 1
        ),
        "two answers": plain + plain,
        "more than it says": plain + b"and more",
    }
    for what, answer in wrong.items():
        yield Case(f"{what}, then the end", [answer], tries=(1, 2))
    yield Case("nine times 100", [b"HTTP/1.1 100 Continue\r\n\r\n" * 9 + plain], tries=(1, 2))
    yield Case(
        "101",
        [b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"],
        tries=(2, 2),
    )


def _lists() -> Iterator[Case]:
    def listed(accepted: int, *entries: tuple[int, str]) -> bytes:
        results = [{"index": index, "status": status, "code": "c"} for index, status in entries]
        return json.dumps({"request_id": "r", "accepted": accepted, "results": results}).encode()

    some = (ACCEPTED, REJECTED, ACCEPTED)
    for status in ("207 Multi-Status", "422 It", "503 It", "504 It"):
        body = listed(2, (1, "rejected"))
        yield Case(f"one is refused, {status}", [_answer(body, status)], some, (1, 1))
        body = listed(1, (1, "rejected"), (2, "retry"))
        yield Case(f"one is refused, one waits, {status}", [_answer(body, status)], some)
        body = listed(0, (0, "unknown"), (1, "rejected"), (2, "retry"))
        yield Case(f"one is unknown, {status}", [_answer(body, status)], some)
    for body in (
        listed(1, (1, "rejected")),
        listed(2, (3, "rejected")),
        listed(2, (-1, "rejected")),
    ):
        yield Case(f"a list that does not fit: {body!r}", [_answer(body, "207 It")])
    yield Case("a word that nobody knows", [_answer(listed(2, (0, "perhaps")), "207 It")])


CASES: tuple[Case, ...] = (*_good(), *_cut(), *_late(), *_of_others(), *_wrong(), *_lists())


@dataclass
class OddGateway:
    """Each case at its own address, and the number of requests for each."""

    url: str = ""
    tries: dict[int, int] = field(default_factory=dict)

    def address(self, nth: int) -> str:
        return f"{self.url}/case/{nth}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._answer(reader, writer)
                writer.close()
                await writer.wait_closed()
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for nth, count in _requests(reader):
            self.tries[nth] = tried = self.tries.get(nth, 0) + 1
            said = CASES[nth].said if tried == 1 else [_answer(_yes(count))]
            for piece in said:
                if isinstance(piece, float):
                    await asyncio.sleep(piece)
                else:
                    writer.write(piece)
                    await writer.drain()
            if tried == 1:
                return


async def _requests(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int, int]]:
    """Return the case that each request asks for, and its number of events."""
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.match(rb"POST /case/(\d+)/v1/streams/orders/events ", head)
        length = re.search(rb"\r\ncontent-length: (\d+)\r\n", head.lower())
        assert found is not None, head
        assert length is not None, head
        body = await reader.readexactly(int(length[1]))
        yield int(found[1]), len(body.splitlines())


@contextmanager
def odd_gateway() -> Iterator[OddGateway]:
    gateway, started = OddGateway(), threading.Event()
    loop, ended = asyncio.new_event_loop(), asyncio.Event()

    async def run() -> None:
        server = await asyncio.start_server(gateway.serve, "127.0.0.1", 0, backlog=1_000)
        gateway.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        await ended.wait()
        server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=[run()])
    thread.start()
    try:
        assert started.wait(10), "the odd gateway does not start"
        yield gateway
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()
