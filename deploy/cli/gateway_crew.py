"""Runs gateway workers on one port, in the foreground, and keeps them alive.

The port is bound here and inherited by every worker. So a waiting connection outlives any single
worker, and any free one accepts it. Workers are forks of this process, which has imported
everything and started no thread: a new worker serves after a tenth of a second.
"""

import asyncio
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import NoReturn

import structlog
import uvloop

from deploy.cli.printing import talk
from gateway.__main__ import serve_until_told
from gateway.http.allocator import tune
from gateway.settings import Settings
from shared.runtime.logs import configure_logs
from shared.runtime.serving.server import listening
from shared.runtime.setup_error import OperatorError, SetupError

log = structlog.get_logger()

# Delay before a killed worker is restarted. For one that ends by itself the delay doubles each
# time, so that it does not spin.
_RESTART_S, _RESTART_S_MAX = 0.1, 10.0
# Exit codes of a worker: it has printed why it cannot run, or it met a bug.
_COULD_NOT, _FAULT = 1, 70
# Time between two checks of the workers.
_LOOK_S = 0.05
_PR_SET_PDEATHSIG = 1


def run(settings: Settings, workers: int, *, stop: threading.Event) -> None:
    """Keep the workers running until `stop` is set, then let each of them drain."""
    with listening(
        "The gateway", host=settings.host, port=settings.port, setting="HIFI_GATEWAY_PORT"
    ) as front:
        crew = [
            _GatewayWorker(number, _settings_of(settings, number, front))
            for number in range(workers)
        ]
        tune()
        try:
            for worker in crew:
                worker.start()
            port = front.getsockname()[1]
            talk.print(f"{workers} gateway workers on {settings.host}:{port}")
            while not stop.wait(_LOOK_S):
                for worker in crew:
                    worker.look_after()
        finally:
            # Nobody accepts connections on this copy of the port; workers have their own copies.
            front.close()
            _end(crew, timeout_s=2 * settings.drain_notice_s + settings.drain_s + 10)


@dataclass
class _GatewayWorker:
    nth: int
    settings: Settings
    pid: int | None = None
    due_at_s: float = 0.0
    wait_s: float = _RESTART_S
    start_count: int = 0

    def start(self) -> None:
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            _be_worker(self.settings, supervisor)
        self.pid = pid
        self.start_count += 1

    def look_after(self) -> None:
        """Restart the worker if it has died; raise SetupError if its first start failed."""
        if self.pid is None:
            if time.monotonic() >= self.due_at_s:
                self.start()
            return
        status = self.ended()
        if status is None:
            return
        if status == _COULD_NOT and self.start_count == 1:
            # The worker has printed the reason: a port, a setting, no Kafka. Another one would
            # fail in the same way. A later failure is temporary: the other workers still serve.
            raise SetupError(f"gateway worker {self.nth} failed: its reason is printed above.")
        talk.print(f"gateway worker {self.nth} ended ({status}) and is started again")
        self.wait_s = min(2 * self.wait_s, _RESTART_S_MAX) if status > 0 else _RESTART_S
        self.due_at_s = time.monotonic() + self.wait_s

    def ended(self) -> int | None:
        """Return the exit code if it has ended; minus the signal's number if a signal ended it."""
        assert self.pid is not None, "only a started worker can end"
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        self.pid = None
        return os.waitstatus_to_exitcode(status)


def _be_worker(settings: Settings, supervisor: int) -> NoReturn:
    """Run a worker in the forked process; never return."""
    status = _FAULT
    try:
        if sys.platform == "linux":
            # Without its supervisor, which may already be gone, nothing would stop this worker.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != supervisor:
                os._exit(0)
        configure_logs(service="gateway", level=settings.log_level)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve_until_told(settings))
        status = 0
    except OperatorError as error:
        status = _COULD_NOT
        sys.stderr.write(f"hifi gateway: {error}\n")
        sys.stderr.flush()
    except Exception:
        # No caller would report it.
        log.exception("gateway.failed")
        sys.stdout.flush()
    finally:
        # Skip the clean-up code inherited from the supervisor.
        os._exit(status)


def _end(crew: list[_GatewayWorker], *, timeout_s: float) -> None:
    """Tell all workers to drain, and wait for each."""
    for worker in crew:
        if worker.pid is not None:
            os.kill(worker.pid, signal.SIGTERM)
    until_s = time.monotonic() + timeout_s
    for worker in crew:
        while worker.pid is not None and worker.ended() is None:
            if time.monotonic() > until_s:
                os.kill(worker.pid, signal.SIGKILL)
            time.sleep(_LOOK_S)


def _settings_of(settings: Settings, nth: int, front: socket.socket) -> Settings:
    # 0 asks for any port, separately for each worker.
    metrics_port = settings.metrics_port + nth if settings.metrics_port else 0
    changed = {
        "listen_fd": front.fileno(),
        "metrics_port": metrics_port,
    }
    return settings.model_copy(update=changed)
