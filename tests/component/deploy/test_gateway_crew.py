"""A worker that meets a fault of ours, or cannot come up again, costs the others nothing."""

import subprocess
import sys
from pathlib import Path

# Of two workers one fails, then does not come up, and whoever comes after it is well.
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
