"""Starts further daemons of a JVM's Spark workers as copies of its first one.

Spark has a daemon for each environment of its workers. A daemon that loads everything by itself
takes 1 s of processor time and 50 MB. Until it has started, the JVM neither takes nor returns
workers for any task (`SparkEnv.createPythonWorker` is synchronized), so all its work stops.
"""

import json
import os
import select
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

# The JVM's own folder, which it passes to all its daemons, and the socket in it.
_FOLDER, _NAME = "SPARK_LOCAL_DIRS", "daemons.sock"
# The variable with the name of a daemon's workers; each name has separate workers.
WORKER_NAME = "HIFI_WORKER"
_ORDER_BYTES_MAX = 1024 * 1024
_OWN = (0, 1, 2)
# Without a folder or a first daemon, each daemon loads everything by itself.
_ALONE = KeyError, OSError

# A copy keeps this open until it ends; the process that requested the copy waits for that.
Held: TypeAlias = socket.socket


def worker_name() -> str:
    return os.environ.get(WORKER_NAME, "")


def is_copied(*, niceness: int) -> bool:
    """Let a copy serve Spark instead of this process; return True when the copy has ended."""
    order = json.dumps({"environ": dict(os.environ), "niceness": niceness}).encode()
    with suppress(*_ALONE), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as first:
        with _address() as address:
            first.connect(address)
        socket.send_fds(first, [order], _OWN)
        first.recv(1)
        return True
    return False


def offer_copies(*, niceness: int) -> Held | None:
    """Offer copies of this process from now on; return in each copy as well."""
    try:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with _address() as address:
            # Nobody answers there, so the socket's creator has ended.
            Path(address).unlink(missing_ok=True)
            listener.bind(address)
        listener.listen()
    except _ALONE:
        os.nice(niceness)
        return None
    if os.fork():
        listener.close()
        os.nice(niceness)
        return None
    return _copied_by(listener)


def _copied_by(listener: socket.socket) -> Held:
    """Serve requests for copies until the JVM is gone; return in each copy."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    poll = select.poll()
    # The first daemon reads its standard input; this process only waits for its end.
    poll.register(0, 0)
    poll.register(listener, select.POLLIN)
    while listener.fileno() in (ready := dict(poll.poll())) or 0 not in ready:
        asker, _ = listener.accept()
        order, own, *_ = socket.recv_fds(asker, _ORDER_BYTES_MAX, len(_OWN))
        if len(own) == len(_OWN) and _is_ours(asker) and not os.fork():
            listener.close()
            _become(order, own)
            return asker
        asker.close()
        for each in own:
            os.close(each)
    os._exit(0)


def _become(order: bytes, own: list[int]) -> None:
    settings = json.loads(order)
    for now, then in zip(own, _OWN, strict=True):
        os.dup2(now, then)
        os.close(now)
    os.environ.clear()
    os.environ.update(settings["environ"])
    os.nice(settings["niceness"])


def _is_ours(asker: socket.socket) -> bool:
    of = struct.Struct("3i")
    _, user, _ = of.unpack(asker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, of.size))
    return bool(user == os.getuid())


@contextmanager
def _address() -> Iterator[str]:
    """Use the folder's descriptor: the path of a socket may have at most 108 bytes."""
    folder = os.open(os.environ[_FOLDER].split(",")[0], os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{_NAME}"
    finally:
        os.close(folder)
