"""Starts Spark's Python workers as copies of one process that has loaded all modules for tasks.

A worker that imports everything itself takes 1 s of processor time, for which the first event after
a start, a pause or a crash would wait. Spark ends workers that are idle for a minute, so that would
happen often. A copy takes 20 ms and shares its memory.
"""

import gc
import resource
import socket
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeAlias

from shared.runtime.spark.daemon_copies import is_copied, offer_copies, worker_name

# For connections to hundreds of destinations; systems allow 1,024 by default, and more on request.
_DESCRIPTORS = 4_096
# The maximum memory of a worker for lanes: many times the sum of all limits in it.
LANES_BYTES_MAX = 2 * 1024**3
# Serves one task; returns another value than 0 if its worker may serve no more tasks.
_Worker: TypeAlias = Callable[[socket.socket, bool], int]


def run_daemon(*preloaded: str, service: str, data_bytes_max: int | None = None) -> None:
    """Load the modules, then wait for Spark to ask for workers.

    A worker that needs more than `data_bytes_max` gets a MemoryError, which fails only its task.
    """
    _load(*preloaded, service=service, data_bytes_max=data_bytes_max).manager()


def run_daemons(
    *preloaded: str, service: str, data_bytes_max: int | None, niceness: Mapping[str, int]
) -> None:
    """Run one of a JVM's several daemons: all but the first one are copies of it.

    When processors are busy, workers with a niceness for their name leave more time to others.
    """
    nice = niceness.get(worker_name(), 0)
    if is_copied(niceness=nice):
        return
    daemon = _load(*preloaded, service=service, data_bytes_max=data_bytes_max)
    copies = offer_copies(niceness=nice)
    try:
        daemon.manager()
    finally:
        if copies is not None:
            copies.close()


def _load(*preloaded: str, service: str, data_bytes_max: int | None) -> Any:
    """Load Spark's daemon and all modules that its workers need."""
    if data_bytes_max is not None:
        _limit(resource.RLIMIT_DATA, data_bytes_max)
    # Spark adds itself to the path as archives, beside the installed package. A new worker clears
    # Python's path caches, and would need 95 ms of processor time to read the archives' lists
    # again.
    sys.path[:] = [path for path in sys.path if not path.endswith(".zip")]
    for path in [path for path in sys.path_importer_cache if path.endswith(".zip")]:
        del sys.path_importer_cache[path]
    _limit(resource.RLIMIT_NOFILE, _DESCRIPTORS)
    daemon: Any = import_module("pyspark.daemon")
    # Spark's side of a task, the module that is needed to clear path caches, and our own modules.
    for module in ("pyspark.worker", "importlib.metadata", *preloaded):
        import_module(module)
    daemon.worker = _that_ends_quietly(daemon.worker)
    logs: Any = import_module("shared.runtime.logs")
    logs.configure_logs(service=service)
    # Arrow's own allocator keeps the memory of a batch: 30 MB in each worker after a batch of
    # 5,000 events. The C library keeps almost nothing, at the same speed (docs/tuning.md).
    arrow: Any = import_module("pyarrow")
    arrow.set_memory_pool(arrow.system_memory_pool())
    # None of this is garbage; a collection in each copy would only copy the pages.
    gc.freeze()
    return daemon


def _limit(what: int, most: int) -> None:
    """Set a limit of this process, as far as the system allows."""
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _that_ends_quietly(worker: _Worker) -> _Worker:
    """Return a worker that ends silently if Spark closes the connection between two tasks.

    A stopping session ends its workers by a signal and by closing their connections, and a worker
    may see either first. Spark's own worker considers a closed connection an error, cannot report
    it to anybody, and writes a traceback to the standard error, which may be a person's terminal.
    """

    def ending(connection: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - Spark's way
        try:
            has_task = bool(connection.recv(1, socket.MSG_PEEK))
        except ConnectionError:
            has_task = False
        return worker(connection, authenticated) if has_task else 1

    return ending
