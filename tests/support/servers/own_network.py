"""A network in which there is nothing but this machine: every fetch from elsewhere fails.

It is that of the calling thread, and of the threads and processes that are started meanwhile.
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
    """Loopback, with these addresses on it as well."""
    ip = program("ip")
    system = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if system.unshare(_CLONE_NEWNET):
            why = os.strerror(ctypes.get_errno())
            pytest.skip(f"this machine makes no networks for tests: {why}")
        try:
            subprocess.run([ip, "link", "set", "lo", "up"], check=True)
            for address in addresses:
                add = [ip, "address", "add", f"{address}/32", "dev", "lo"]
                subprocess.run(add, check=True)
            with socket.socket() as probe:
                assert probe.connect_ex(_ELSEWHERE) == errno.ENETUNREACH
            yield
        finally:
            assert not system.setns(before, _CLONE_NEWNET), "the way back is lost"
    finally:
        os.close(before)
