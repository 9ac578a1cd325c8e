"""Starts Spark's Python workers as copies of one process that has loaded what their tasks need.

A worker that imports everything itself takes a second of processor time, for which the first event
after a start, a pause or a crash would wait. Spark lets go of a worker that rests for a
minute, so that would happen often. A copy takes 20 ms and shares its memory.
"""

import gc
import resource
import socket
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeAlias

from shared.runtime.spark.daemon_copies import is_copied, offer_copies, worker_name

# Connections to hundreds of destinations; systems give 1,024 by default, and more on request.
_DESCRIPTORS = 4_096
# The most memory that a worker of lanes may take: many times the sum of all bounds in it.
LANES_BYTES_MAX = 2 * 1024**3
# Serves one task; returns other than 0 when its worker may have no more of them.
_Worker: TypeAlias = Callable[[socket.socket, bool], int]


def run_daemon(*preloaded: str, service: str, data_bytes_max: int | None = None) -> None:
    """Load the modules, then wait for Spark to ask for workers.

    A worker that wants more memory than that gets a MemoryError, which fails its task alone.
    """
    _load(*preloaded, service=service, data_bytes_max=data_bytes_max).manager()


def run_daemons(
    *preloaded: str, service: str, data_bytes_max: int | None, niceness: Mapping[str, int]
) -> None:
    """Do the same where a JVM has several: all but the first are copies of that.

    Where processors are short, workers with a niceness by their name leave more of them to others.
    """
    nice = niceness.get(worker_name(), 0)
    if is_copied(niceness=nice):
        return
    daemon = _load(*preloaded, service=service, data_bytes_max=data_bytes_max)
    held = offer_copies(niceness=nice)
    try:
        daemon.manager()
    finally:
        if held is not None:
            held.close()


def _load(*preloaded: str, service: str, data_bytes_max: int | None) -> Any:
    """Load Spark's daemon, with everything its workers need."""
    if data_bytes_max is not None:
        _limit(resource.RLIMIT_DATA, data_bytes_max)
    # Spark puts itself on the path as archives, beside the installed package. A new worker clears
    # Python's caches of its paths, and reading the archives' lists again takes it 95 ms of
    # processor time.
    sys.path[:] = [path for path in sys.path if not path.endswith(".zip")]
    for path in [path for path in sys.path_importer_cache if path.endswith(".zip")]:
        del sys.path_importer_cache[path]
    _limit(resource.RLIMIT_NOFILE, _DESCRIPTORS)
    daemon: Any = import_module("pyspark.daemon")
    # Spark's side of a task, the module that clearing path caches needs, and ours.
    for module in ("pyspark.worker", "importlib.metadata", *preloaded):
        import_module(module)
    daemon.worker = _that_ends_quietly(daemon.worker)
    logs: Any = import_module("shared.runtime.logs")
    logs.configure_logs(service=service)
    # Arrow's own allocator keeps the memory of a batch: 30 MB in each worker that has had one of
    # 5,000 events. The C library keeps next to nothing, at the same speed (docs/tuning.md).
    arrow: Any = import_module("pyarrow")
    arrow.set_memory_pool(arrow.system_memory_pool())
    # Nothing of this is garbage; a collection in each copy would only copy the pages.
    gc.freeze()
    return daemon


def _limit(what: int, most: int) -> None:
    """Set a limit of this process, as far as the system lets it."""
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _that_ends_quietly(worker: _Worker) -> _Worker:
    """The same, but between two tasks it ends without a word when Spark hangs up.

    A session that stops ends its workers by a signal and by closing their connections, and they see
    the one or the other first. Spark's own worker takes the second for an error, cannot report it
    to anybody, and writes a traceback to the standard error, which may be somebody's terminal.
    """

    def ending(connection: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - Spark's way
        try:
            has_task = bool(connection.recv(1, socket.MSG_PEEK))
        except ConnectionError:
            has_task = False
        return worker(connection, authenticated) if has_task else 1

    return ending
