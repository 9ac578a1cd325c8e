"""Runs Squid, a forward proxy, as a test's own process."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.local.ports import pick_free
from tests.support.servers.foreign import started
from tests.support.suite.programs import program

_HELPERS = ("/usr/lib/squid/basic_ncsa_auth", "/usr/lib64/squid/basic_ncsa_auth")
_CONFIGURATION = """
http_port 127.0.0.1:{port}
acl everybody src all
{sign_in}
http_access {allows} everybody
cache deny all
access_log none
cache_log {folder}/cache.log
pid_filename none
coredump_dir {folder}
shutdown_lifetime 0 seconds
visible_hostname squid.example
pinger_enable off
"""
_SIGN_IN = """
auth_param basic program {helper} {folder}/passwords
acl known proxy_auth REQUIRED
http_access deny !known
"""


class Squid:
    """A Squid that can be killed and started again at the same address."""

    def __init__(self, folder: Path, *, password: str, allows: bool) -> None:
        self._program = program("squid")
        self._folder = folder
        (self._port,) = pick_free(1)
        self._child: subprocess.Popen[bytes] | None = None
        # It gives up root, and reads its files as another user.
        folder.chmod(0o777)
        sign_in = ""
        if password:
            helper = next(path for path in _HELPERS if Path(path).exists())
            passwords = folder / "passwords"
            passwords.write_text(f"hifi:{_hashed(password)}\n")
            passwords.chmod(0o644)
            sign_in = _SIGN_IN.format(helper=helper, folder=folder)
        text = _CONFIGURATION.format(
            port=self._port, folder=folder, sign_in=sign_in, allows="allow" if allows else "deny"
        )
        (folder / "squid.conf").write_text(text)
        (folder / "squid.conf").chmod(0o644)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Return when it accepts connections."""
        configuration = str(self._folder / "squid.conf")
        self._child = started(self._program, "-N", "-f", configuration, port=self._port)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait(10)


@contextmanager
def running_squid(*, password: str = "", allows: bool = True) -> Iterator[Squid]:
    """Run Squid; with a password, the user "hifi" has to sign in."""
    with tempfile.TemporaryDirectory(prefix="hifi-squid-") as folder:
        squid = Squid(Path(folder), password=password, allows=allows)
        squid.start()
        try:
            yield squid
        finally:
            squid.kill()


def _hashed(password: str) -> str:
    openssl = shutil.which("openssl") or "openssl"
    asked = [openssl, "passwd", "-apr1", password]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
