"""Resolves names to addresses with the machine's resolver, whose silence is no answer."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address

import idna

from shared.config.addresses import Address, HostError

# A resolver that has answered within this time is taken to be up.
_TRUST_S = 60.0

Resolve = Callable[[str], Awaitable[Sequence[Address]]]


class ResolverDownError(Exception):
    """Nobody answers for names; that says nothing about the destination."""


class NoSuchHostError(Exception):
    """The name has no address."""


class Resolver:
    """Asks the machine's resolver. When it fails for one name only, that is the name's doing."""

    def __init__(self) -> None:
        self._answered_at_s = float("-inf")

    async def __call__(self, host: str) -> list[Address]:
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            has_answered = loop.time() < self._answered_at_s + _TRUST_S
            if error.errno == socket.EAI_AGAIN and not has_answered:
                raise ResolverDownError(said_by(error)) from error
            # "Try again", but other names are answered: the name's own servers are at fault.
            raise NoSuchHostError(said_by(error)) from error
        except UnicodeError as error:
            raise NoSuchHostError(said_by(error)) from error
        self._answered_at_s = loop.time()
        return [ip_address(str(info[4][0]).partition("%")[0]) for info in answers]


def ascii_host(host: str) -> str:
    """A host as DNS knows it; HostError when it cannot be one."""
    try:
        return host if host.isascii() else idna.encode(host, uts46=True).decode()
    except idna.IDNAError as error:
        raise HostError(str(error)) from error


def said_by(error: Exception) -> str:
    """An error as people read it: what it is, and what it says."""
    return f"{type(error).__name__}: {error}"
