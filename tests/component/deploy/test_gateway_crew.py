"""A worker that fails, or cannot start again, does not affect the other workers."""

import subprocess
import sys
from pathlib import Path

# One of two workers fails, its successor does not start, and the third worker is well.
SCRIPT = """
import asyncio, sys, time
from pathlib import Path
from deploy.cli import gateway_crew
from gateway.settings import Settings
from shared.runtime.setup_error import SetupError

folder = Path(sys.argv[1])
failed, refused, well = folder / "failed", folder / "refused", folder / "well"

async def serve(settings):
    if settings.metrics_port == 9001:
        try:
            failed.touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            raise RuntimeError("a bug")
        try:
            refused.touch(exist_ok=False)
        except FileExistsError:
            well.touch()
        else:
            raise SetupError("Kafka does not answer")
    await asyncio.sleep(30)

class Stop:
    until_s = time.monotonic() + 20
    def wait(self, timeout_s):
        time.sleep(timeout_s)
        return well.exists() or time.monotonic() > self.until_s

gateway_crew.serve_until_told = serve
gateway_crew.run(Settings(port=0, metrics_port=9000), 2, stop=Stop())
"""


def test_a_fault_ends_one_worker_for_a_moment_and_is_said(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (tmp_path / "well").exists()
    assert "RuntimeError: a bug" in ran.stdout + ran.stderr
    assert "gateway.failed" in ran.stdout + ran.stderr
    assert "gateway worker 1 ended (70) and is started again" in ran.stdout + ran.stderr
    assert "hifi gateway: Kafka does not answer" in ran.stderr
    assert "gateway worker 1 ended (1) and is started again" in ran.stdout + ran.stderr


# Each of two workers stops accepting connections on request, and continues its work.
DRAIN = """
import asyncio, os, signal, socket, sys, time
from pathlib import Path
from deploy.cli import gateway_crew
from gateway.settings import Settings

folder = Path(sys.argv[1])

async def serve(settings):
    name = str(settings.metrics_port)
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    front = socket.socket(fileno=settings.listen_fd)
    (folder / f"port-{name}").write_text(str(front.getsockname()[1]))
    await told.wait()
    front.close()
    (folder / f"closed-{name}").touch()
    while len(list(folder.glob("closed-*"))) < 2:
        await asyncio.sleep(0.01)
    port = int((folder / f"port-{name}").read_text())
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        (folder / f"refused-{name}").touch()

class Stop:
    until_s = time.monotonic() + 20
    def wait(self, timeout_s):
        time.sleep(timeout_s)
        return len(list(folder.glob("port-*"))) == 2 or time.monotonic() > self.until_s

gateway_crew.serve_until_told = serve
gateway_crew.run(Settings(port=0, metrics_port=9000), 2, stop=Stop())
"""


def test_once_no_worker_accepts_nobody_waits_in_the_socket_that_they_shared(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", DRAIN, str(tmp_path)], capture_output=True, check=True, timeout=60
    )
    assert len(list(tmp_path.glob("refused-*"))) == 2
