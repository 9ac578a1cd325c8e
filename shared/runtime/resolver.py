"""Resolves names to addresses with the machine's resolver, whose silence is no answer.

Tenants choose the names, and a name whose servers are dead keeps a thread for 10 s and more. So
there is one look-up at a time for a name, and half of the threads are for names that answered when
they were last asked for. One tenant has half of the other threads at most. A look-up that gets no
thread says that nobody was asked, which is nobody's failure.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import TypeAlias

import idna

from shared.config.addresses import Address, HostError
from shared.runtime.tenant_turns import TenantTurns

# A resolver that has answered within this time is taken to be up.
_TRUST_S = 60.0
# How long an answer is kept, even one without addresses. It is safe, as connections go to addresses
# that were judged; balancers that change theirs say 30 to 60 s in DNS.
FRESH_S = 10.0
# While there is no new answer, an old one serves (RFC 8767), after a wait that leaves most of
# `connect_timeout_s` to the connection.
STALE_S = 300.0
STALE_AFTER_S = 1.0
# Look-ups at once, in threads of their own: for names that answered last time, and for the others.
_KNOWN_THREADS = 16
UNKNOWN_THREADS = 16
# The most names with a kept answer, and the most that wait for a thread: some 2 KB each.
NAMES_MAX = 4_096
# A name may have thousands; we do not connect to addresses that we do not keep.
_ADDRESSES_MAX = 32
_NEVER_S = float("-inf")

LookUp: TypeAlias = Callable[[str], Sequence[Address]]


class ResolverDownError(Exception):
    """Nobody answers for names, or nobody could be asked: the destination may be well."""


class NoSuchHostError(Exception):
    """The name has no address."""


@dataclass(frozen=True, slots=True)
class _ResolvedHost:
    """The answer for a name: its addresses, or why there are none."""

    addresses: Sequence[Address] = ()
    at_s: float = _NEVER_S
    refusal: type[NoSuchHostError | ResolverDownError] = NoSuchHostError
    said: str = "the name has no address"

    def read(self) -> Sequence[Address]:
        if not self.addresses:
            raise self.refusal(self.said)
        return self.addresses


def look_up(host: str) -> list[Address]:
    """Ask the machine's resolver; raise OSError or UnicodeError when it names no address."""
    answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [ip_address(str(info[4][0]).partition("%")[0]) for info in answers]


class Resolver:
    """Asks the machine's resolver. When it fails for one name only, that is the name's doing."""

    def __init__(self, look_up: LookUp = look_up) -> None:
        self._look_up = look_up
        self._threads = ThreadPoolExecutor(_KNOWN_THREADS + UNKNOWN_THREADS, "resolver")
        self._known_turns = asyncio.Semaphore(_KNOWN_THREADS)
        self._unknown_turns = TenantTurns(UNKNOWN_THREADS, of_a_tenant=UNKNOWN_THREADS // 2)
        self._answered_at_s = _NEVER_S
        # The newest is the last.
        self._answers: dict[str, _ResolvedHost] = {}
        self._under_way: dict[str, asyncio.Task[_ResolvedHost]] = {}
        self._begun: set[str] = set()

    async def __call__(self, host: str, until_s: float, tenant: str = "") -> Sequence[Address]:
        """The addresses of a name; waits for them until then by the loop's clock, and no longer."""
        now_s = asyncio.get_running_loop().time()
        known = self._answers.get(host, _ResolvedHost())
        if now_s < known.at_s + FRESH_S:
            return known.read()
        may_serve = bool(known.addresses) and now_s < known.at_s + STALE_S
        asked = self._under_way.get(host)
        if asked is None:
            if len(self._under_way) >= NAMES_MAX:
                raise ResolverDownError("too many names are waited for")
            # It goes on when nobody waits for it any more.
            asked = self._under_way[host] = asyncio.create_task(self._ask(host, known, tenant))
        wait_s = min(until_s - now_s, STALE_AFTER_S) if may_serve else until_s - now_s
        await asyncio.wait([asked], timeout=max(0.0, wait_s))
        answer = asked.result() if asked.done() else self._silence(host, "no answer in time")
        is_silence = not asked.done() or answer.refusal is ResolverDownError
        return known.addresses if is_silence and may_serve else answer.read()

    def forget(self, host: str) -> None:
        """Have the next caller ask again: an address of the name does not answer."""
        if host in self._answers:
            self._answers[host] = replace(self._answers[host], at_s=_NEVER_S)

    async def _ask(self, host: str, known: _ResolvedHost, tenant: str) -> _ResolvedHost:
        loop = asyncio.get_running_loop()
        try:
            async with self._known_turns if known.addresses else self._unknown_turns.of(tenant):
                self._begun.add(host)
                addresses = await loop.run_in_executor(self._threads, self._look_up, host)
            self._answered_at_s = loop.time()
            answer = _ResolvedHost(addresses[:_ADDRESSES_MAX], loop.time())
        except (OSError, UnicodeError) as error:
            answer = self._failed(host, error)
        finally:
            del self._under_way[host]
            self._begun.discard(host)
        if answer.refusal is not ResolverDownError:
            self._answers.pop(host, None)
            self._answers[host] = answer
            if len(self._answers) > NAMES_MAX:
                del self._answers[next(iter(self._answers))]
        return answer

    def _failed(self, host: str, error: OSError | UnicodeError) -> _ResolvedHost:
        if isinstance(error, OSError) and not isinstance(error, socket.gaierror):
            # The error is this machine's: it has no descriptor left, for example.
            return _ResolvedHost(refusal=ResolverDownError, said=said_by(error))
        if isinstance(error, OSError) and error.errno == socket.EAI_AGAIN:
            return self._silence(host, said_by(error))
        return _ResolvedHost(at_s=asyncio.get_running_loop().time(), said=said_by(error))

    def _silence(self, host: str, said: str) -> _ResolvedHost:
        """Blame the name's own servers only if other names were answered lately."""
        if host not in self._begun:
            said = "it could not be asked for: other names wait for their servers"
        now_s = asyncio.get_running_loop().time()
        if host in self._begun and now_s < self._answered_at_s + _TRUST_S:
            return _ResolvedHost(at_s=now_s, said=said)
        return _ResolvedHost(refusal=ResolverDownError, said=said)


def ascii_host(host: str) -> str:
    """A host as DNS knows it; HostError when it cannot be one."""
    try:
        return host if host.isascii() else idna.encode(host, uts46=True).decode()
    except idna.IDNAError as error:
        raise HostError(str(error)) from error


def said_by(error: Exception) -> str:
    """An error as people read it: its type and its text."""
    return f"{type(error).__name__}: {error}"
