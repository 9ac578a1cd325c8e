"""A network with only this machine in it: every fetch from elsewhere fails.

The calling thread is in it, with the threads and processes that start meanwhile.
"""

import ctypes
import errno
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.suite.programs import program

_CLONE_NEWNET = 0x4000_0000
# An address for documentation: no machine has it.
_ELSEWHERE = ("192.0.2.1", 443)


@contextmanager
def own_network(*addresses: str) -> Iterator[None]:
    """Make a network with loopback, and with these addresses on it."""
    ip = program("ip")
    system = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if system.unshare(_CLONE_NEWNET):
            why = os.strerror(ctypes.get_errno())
            pytest.skip(f"this machine does not allow networks for tests: {why}")
        try:
            subprocess.run([ip, "link", "set", "lo", "up"], check=True)
            for address in addresses:
                add = [ip, "address", "add", f"{address}/32", "dev", "lo"]
                subprocess.run(add, check=True)
            with socket.socket() as probe:
                assert probe.connect_ex(_ELSEWHERE) == errno.ENETUNREACH
            yield
        finally:
            assert not system.setns(before, _CLONE_NEWNET), (
                "the process cannot return to its own network"
            )
    finally:
        os.close(before)
