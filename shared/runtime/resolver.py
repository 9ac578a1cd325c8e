"""Resolves names to addresses with the machine's resolver, whose silence is not an answer.

Tenants choose the names, and a name with dead servers occupies a thread for 10 s and more. So each
name has one look-up at a time, and half of the threads are for names that were answered last time.
One tenant gets half of the other threads at most. A look-up without a thread reports that nobody
was asked, which counts as no destination's failure.
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

# A resolver that has answered within this time counts as up.
_TRUST_S = 60.0
# How long an answer is fresh, even one without addresses. That is safe, because connections go to
# checked addresses, and load balancers with changing addresses set 30 to 60 s in DNS.
FRESH_S = 10.0
# Without a new answer, an old one is used (RFC 8767), after a wait that leaves most of
# `connect_timeout_s` for the connection.
STALE_S = 300.0
STALE_AFTER_S = 1.0
# The threads for names that were answered last time, and for the others.
_KNOWN_THREADS = 16
UNKNOWN_THREADS = 16
# The maximum number of names with a kept answer, and of names that wait for a thread: about 2 kB
# each.
NAMES_MAX = 4_096
# A name may have thousands of addresses; only the kept ones are used.
_ADDRESSES_MAX = 32
_NEVER_S = float("-inf")

LookUp: TypeAlias = Callable[[str], Sequence[Address]]


class ResolverDownError(Exception):
    """The resolver does not answer or could not be asked: the destination may be healthy."""


class NoSuchHostError(Exception):
    """The name has no address."""


@dataclass(frozen=True, slots=True)
class _ResolvedHost:
    """The answer for a name: its addresses, or the reason why there are none."""

    addresses: Sequence[Address] = ()
    at_s: float = _NEVER_S
    refusal: type[NoSuchHostError | ResolverDownError] = NoSuchHostError
    said: str = "the name has no address"

    def read(self) -> Sequence[Address]:
        if not self.addresses:
            raise self.refusal(self.said)
        return self.addresses


def look_up(host: str) -> list[Address]:
    """Ask the machine's resolver; raise OSError or UnicodeError if it returns no address."""
    answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [ip_address(str(info[4][0]).partition("%")[0]) for info in answers]


class Resolver:
    """Asks the machine's resolver. A failure that affects only one name is that name's fault."""

    def __init__(self, look_up: LookUp = look_up) -> None:
        self._look_up = look_up
        self._threads = ThreadPoolExecutor(_KNOWN_THREADS + UNKNOWN_THREADS, "resolver")
        self._known_turns = asyncio.Semaphore(_KNOWN_THREADS)
        self._unknown_turns = TenantTurns(UNKNOWN_THREADS, of_a_tenant=UNKNOWN_THREADS // 2)
        self._answered_at_s = _NEVER_S
        # In the order of the answers, the newest last.
        self._answers: dict[str, _ResolvedHost] = {}
        self._under_way: dict[str, asyncio.Task[_ResolvedHost]] = {}
        self._begun: set[str] = set()

    async def __call__(self, host: str, until_s: float, tenant: str = "") -> Sequence[Address]:
        """Return the addresses of a name; wait for them until `until_s` by the loop's clock."""
        now_s = asyncio.get_running_loop().time()
        known = self._answers.get(host, _ResolvedHost())
        if now_s < known.at_s + FRESH_S:
            return known.read()
        may_serve = bool(known.addresses) and now_s < known.at_s + STALE_S
        asked = self._under_way.get(host)
        if asked is None:
            if len(self._under_way) >= NAMES_MAX:
                raise ResolverDownError("too many names are being looked up")
            # The look-up continues even when nobody waits for it any more.
            asked = self._under_way[host] = asyncio.create_task(self._ask(host, known, tenant))
        wait_s = min(until_s - now_s, STALE_AFTER_S) if may_serve else until_s - now_s
        await asyncio.wait([asked], timeout=max(0.0, wait_s))
        answer = asked.result() if asked.done() else self._silence(host, "no answer in time")
        is_silence = not asked.done() or answer.refusal is ResolverDownError
        return known.addresses if is_silence and may_serve else answer.read()

    def forget(self, host: str) -> None:
        """Make the next caller ask again, because an address of the name does not answer."""
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
            # This machine has the problem, such as no descriptor left.
            return _ResolvedHost(refusal=ResolverDownError, said=said_by(error))
        if isinstance(error, OSError) and error.errno == socket.EAI_AGAIN:
            return self._silence(host, said_by(error))
        return _ResolvedHost(at_s=asyncio.get_running_loop().time(), said=said_by(error))

    def _silence(self, host: str, said: str) -> _ResolvedHost:
        """Blame the name's own servers only if another name was answered recently."""
        if host not in self._begun:
            said = "the name was not looked up: other names wait for their servers"
        now_s = asyncio.get_running_loop().time()
        if host in self._begun and now_s < self._answered_at_s + _TRUST_S:
            return _ResolvedHost(at_s=now_s, said=said)
        return _ResolvedHost(refusal=ResolverDownError, said=said)


def ascii_host(host: str) -> str:
    """Return a host in the form of DNS; HostError if it cannot be one."""
    try:
        return host if host.isascii() else idna.encode(host, uts46=True).decode()
    except idna.IDNAError as error:
        raise HostError(str(error)) from error


def said_by(error: Exception) -> str:
    """Return an error's type and text for people."""
    return f"{type(error).__name__}: {error}"
