"""Long reports share a worker's memory; one tenant's leave room for those of others."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from delivery.http.reply_room import ReplyRoom, RoomPlace
from delivery.http.sender import Sender
from shared.config.destination import Destination
from shared.retry.attempt import Attempt, Failure, NoResponse, Response
from shared.runtime.secret_box import SecretBox

MB = 1_048_576
EVENTS = 10_000
REPORT = json.dumps({"failed": [{"index": at, "why": "x" * 90} for at in range(1_000)]}).encode()
_HEAD = b"HTTP/1.1 207 Multi-Status\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


def test_a_tenant_has_a_quarter_and_who_waits_has_what_others_leave() -> None:
    went: list[str] = []
    room = ReplyRoom(16)
    places = {
        name: RoomPlace(name[0], 4, lambda name=name: went.append(name))  # type: ignore[misc]
        for name in ("a1", "a2", "b1", "c1", "d1", "e1")
    }
    for place in places.values():
        room.enter(place)
    # The second reply of tenant a waits for the tenant's share, and tenant e's reply for room.
    assert went == ["a1", "b1", "c1", "d1"]
    room.leave(places["b1"])
    assert went[4:] == ["e1"]
    room.leave(places["a1"])
    assert went[5:] == ["a2"]
    # A place that is given up before it got any room frees none.
    room.enter(places["b1"])
    room.leave(places["b1"])
    assert room.used_bytes == 16
    for name in ("a2", "c1", "d1", "e1"):
        room.leave(places[name])
    assert room.used_bytes == 0
    assert "b1" not in went[6:]


@asynccontextmanager
async def server(body: bytes, *, ends: asyncio.Event | None = None) -> AsyncIterator[Destination]:
    """Serve a report; with `ends`, send its last byte once that is set."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"[1]")
        writer.write(_HEAD % len(body) + body[:-1])
        if ends is not None:
            await ends.wait()
        writer.write(body[-1:])
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        yield Destination("demo", "to", f"http://127.0.0.1:{port}/", timeout_s=30)


def test_reports_that_never_end_keep_no_memory_and_hold_up_no_other_tenant() -> None:
    async def scenario() -> None:
        sender, ends = Sender(box=SecretBox([]), allows_private=True), asyncio.Event()
        long = b" " * (4 * MB)

        async def post(to: Destination, tenant: str) -> Attempt:
            headers = {"content-type": "application/json"}
            return await sender.post(to, b"[1]", headers, event_count=EVENTS, tenant=tenant)

        async with server(long, ends=ends) as hostile, server(REPORT) as well:
            posts = [asyncio.create_task(post(hostile, "hostile")) for _ in range(40)]
            room = sender._context.room
            async with asyncio.timeout(20):
                while room.used_bytes < 16 * MB:  # noqa: ASYNC110 - no event for it
                    await asyncio.sleep(0.01)
            async with asyncio.timeout(10):
                answered = await post(well, "neighbour")
            assert isinstance(answered, Response)
            assert answered.report == REPORT
            assert room.used_bytes == 16 * MB
            ends.set()
            # The replies are read one after the other.
            ended = await asyncio.gather(*posts)
            assert {type(each) for each in ended} == {Response}
            assert room.used_bytes == 0
        await sender.close()

    asyncio.run(scenario())


def test_a_report_is_as_long_as_its_batch_allows() -> None:
    async def scenario() -> None:
        sender = Sender(box=SecretBox([]), allows_private=True)
        async with server(REPORT) as to:
            headers = {"content-type": "application/json"}
            for count, is_read in ((1, False), (10, False), (1_000, True)):
                attempt = await sender.post(to, b"[1]", headers, event_count=count)
                if is_read:
                    assert isinstance(attempt, Response)
                    assert attempt.report == REPORT
                else:
                    assert attempt == NoResponse(
                        Failure.RESPONSE_UNREADABLE, "a report that was cut"
                    )
        await sender.close()

    asyncio.run(scenario())
