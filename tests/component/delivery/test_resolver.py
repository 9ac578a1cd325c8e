"""DNS look-ups: one tenant's dead name servers delay no look-up of other tenants."""

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from itertools import cycle

import pytest

from delivery.http.sender import Sender
from shared.config.addresses import Address
from shared.retry.attempt import Attempt, Failure, NoResponse, Response, classify
from shared.runtime import resolver as module
from shared.runtime.resolver import NoSuchHostError, Resolver, ResolverDownError
from tests.support.delivery.egress_sends import BOX, a_destination
from tests.support.servers.scripted_destination import scripted_destination

HERE = [ip_address("127.0.0.1")]
IN_TIME_S = 20.0


class Names:
    """Name servers, some of which are silent until the test lets them answer."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.errors: dict[str, OSError] = {}
        self.silence_ends = threading.Event()
        self.asked_silent = threading.Semaphore(0)

    def look_up(self, host: str) -> list[Address]:
        self.asked[host] += 1
        if host in self.errors:
            raise self.errors[host]
        if host.startswith("silent"):
            self.asked_silent.release()
            self.silence_ends.wait(IN_TIME_S)
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return HERE


@contextmanager
def names() -> Iterator[Names]:
    made = Names()
    try:
        yield made
    finally:
        made.silence_ends.set()


async def ask(
    resolver: Resolver, host: str, *, tenant: str = "acme", within_s: float = IN_TIME_S
) -> list[Address]:
    until_s = asyncio.get_running_loop().time() + within_s
    return list(await resolver(host, until_s, tenant))


async def silent(
    resolver: Resolver, known: Names, count: int, *, tenants: str = "ab"
) -> list[asyncio.Task[list[Address]]]:
    """Ask for `count` silent names, and wait until all possible lookups have started."""
    waiting = [
        asyncio.create_task(ask(resolver, f"silent{nth}.example", tenant=tenant))
        for nth, tenant in zip(range(count), cycle(tenants), strict=False)
    ]
    for _ in range(min(count, len(tenants) * module.UNKNOWN_THREADS // 2)):
        assert await asyncio.to_thread(known.asked_silent.acquire, timeout=IN_TIME_S)
    return waiting


async def leave(waiting: list[asyncio.Task[list[Address]]], known: Names) -> None:
    known.silence_ends.set()
    await asyncio.gather(*waiting, return_exceptions=True)


def run(test: Callable[[Resolver, Names], Coroutine[None, None, None]]) -> None:
    with names() as known:
        asyncio.run(test(Resolver(known.look_up), known))


def test_names_whose_servers_are_dead_keep_no_thread_from_a_name_that_answers() -> None:
    async def test(resolver: Resolver, known: Names) -> None:
        assert await ask(resolver, "shop.example") == HERE
        resolver.forget("shop.example")
        waiting = await silent(resolver, known, 64)
        assert await ask(resolver, "shop.example") == HERE
        assert not any(each.done() for each in waiting)
        await leave(waiting, known)

    run(test)


def test_dead_names_of_one_tenant_leave_threads_to_new_names_of_another() -> None:
    async def test(resolver: Resolver, known: Names) -> None:
        waiting = await silent(resolver, known, 64, tenants="a")
        assert await ask(resolver, "shop.example", tenant="b") == HERE
        assert not any(each.done() for each in waiting)
        await leave(waiting, known)

    run(test)


def test_who_must_wait_for_a_thread_is_parked_and_charged_nothing() -> None:
    with names() as known:

        async def send() -> Attempt:
            resolver = Resolver(known.look_up)
            waiting = await silent(resolver, known, 64)
            sender = Sender(allows_private=True, box=BOX, resolver=resolver)
            to = a_destination("http://new.example/", connect_timeout_s=0.05)
            attempt = await sender.post(to, b"[1]", {})
            assert known.asked["new.example"] == 0
            await leave(waiting, known)
            await sender.close()
            return attempt

        attempt = asyncio.run(send())
    assert isinstance(attempt, NoResponse)
    assert attempt.failure is Failure.RESOLVER_DOWN
    assert not classify(attempt).is_breaker_failure


def test_a_name_is_looked_up_once_however_many_ask_for_it() -> None:
    async def test(resolver: Resolver, known: Names) -> None:
        waiting = [asyncio.create_task(ask(resolver, "silent.example")) for _ in range(8)]
        assert await asyncio.to_thread(known.asked_silent.acquire, timeout=IN_TIME_S)
        assert await ask(resolver, "shop.example") == HERE
        await leave(waiting, known)
        assert known.asked == {"silent.example": 1, "shop.example": 1}
        assert all(isinstance(each.exception(), NoSuchHostError) for each in waiting)

    run(test)


def test_an_answer_is_kept_for_a_while_and_so_is_that_there_is_none() -> None:
    async def test(resolver: Resolver, known: Names) -> None:
        known.errors["none.example"] = socket.gaierror(socket.EAI_NONAME, "no such name")
        for _ in range(3):
            assert await ask(resolver, "shop.example") == HERE
            with pytest.raises(NoSuchHostError):
                await ask(resolver, "none.example")
        assert known.asked == {"shop.example": 1, "none.example": 1}

    run(test)


def test_an_answer_that_is_old_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRESH_S", 0.0)

    async def test(resolver: Resolver, known: Names) -> None:
        await ask(resolver, "shop.example")
        await ask(resolver, "shop.example")
        assert known.asked == {"shop.example": 2}

    run(test)


def test_an_old_answer_serves_while_there_is_no_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 8767: better an answer that was right a minute ago than none."""
    monkeypatch.setattr(module, "FRESH_S", 0.0)
    monkeypatch.setattr(module, "STALE_AFTER_S", 0.01)
    with names() as known:
        is_up = True

        def look_up(host: str) -> list[Address]:
            return HERE if is_up else known.look_up(f"silent.{host}")

        async def test() -> None:
            nonlocal is_up
            resolver = Resolver(look_up)
            await ask(resolver, "shop.example")
            is_up = False
            assert await ask(resolver, "shop.example") == HERE
            # But an answer is forgotten, and not used, after its address did not answer.
            resolver.forget("shop.example")
            with pytest.raises((NoSuchHostError, ResolverDownError)):
                await ask(resolver, "shop.example", within_s=0.05)
            known.silence_ends.set()

        asyncio.run(test())


def test_silence_is_the_names_own_only_if_others_are_answered() -> None:
    async def test(resolver: Resolver, known: Names) -> None:
        with pytest.raises(ResolverDownError):
            await ask(resolver, "silent.example", within_s=0.05)
        assert await asyncio.to_thread(known.asked_silent.acquire, timeout=IN_TIME_S)
        await ask(resolver, "shop.example")
        with pytest.raises(NoSuchHostError):
            await ask(resolver, "silent.example", within_s=0.05)

    run(test)


def test_what_is_kept_of_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMES_MAX", 10)

    async def test(resolver: Resolver, known: Names) -> None:
        for number in range(30):
            await ask(resolver, f"shop{number}.example")
        assert len(resolver._answers) == 10
        assert await ask(resolver, "shop29.example") == HERE
        assert known.asked["shop29.example"] == 1

    run(test)


def test_an_address_that_does_not_answer_is_asked_for_again() -> None:
    asked = []

    def look_up(host: str) -> list[Address]:
        asked.append(host)
        return [ip_address("127.0.0.2" if len(asked) == 1 else "127.0.0.1")]

    async def send(url: str) -> list[Attempt]:
        sender = Sender(allows_private=True, box=BOX, resolver=Resolver(look_up))
        try:
            to = a_destination(url)
            return [await sender.post(to, b"[1]", {}) for _ in range(2)]
        finally:
            await sender.close()

    with scripted_destination() as destination:
        moved, found = asyncio.run(send(destination.url.replace("127.0.0.1", "moved.example")))
    assert isinstance(moved, NoResponse)
    assert moved.failure is Failure.CONNECT_REFUSED
    assert found == Response(200)


def test_no_look_up_takes_a_thread_of_anybody_else() -> None:
    """The loop's own threads are for files and other work of the process."""

    async def test(resolver: Resolver, known: Names) -> None:
        waiting = await silent(resolver, known, 64)
        started_s = time.monotonic()
        await asyncio.gather(*(asyncio.to_thread(str) for _ in range(64)))
        assert not known.silence_ends.is_set()
        assert time.monotonic() - started_s < IN_TIME_S
        await leave(waiting, known)

    run(test)
