"""Runs programs by chroot on a Debian with Python alone, in this machine's network."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.deploy.debian import java_options, make_debian
from tests.support.deploy.stack_fixtures import PATIENCE_S
from tests.tidy.sources import ROOT

UV = ROOT / ".tools" / "bin" / "uv"
# A first start also fetches the jars and makes class archives.
_START_S = 3 * PATIENCE_S
_LOOK_S = 0.1
# Index of packages, and authorities, that this machine's uv uses.
_OF_UV = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX", "SSL_CERT_")
# Only /tmp stays writable where the root is read-only.
_ENTER = """
mount --bind "$0" "$0"
mount -t proc proc "$0/proc"
mount --bind /dev "$0/dev"
mount --bind /etc/ssl/certs "$0/etc/ssl/certs"
mount --bind /etc/resolv.conf "$0/etc/resolv.conf" 2>/dev/null || true
mount --bind "$0/tmp" "$0/tmp"
if [ -n "$READ_ONLY" ]; then mount -o remount,bind,ro "$0"; fi
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Visitor:
    """A user of the machine, and what this user may write to."""

    number: int
    home: str
    environ: Mapping[str, str]
    is_read_only: bool = False


class EmptyMachine:
    """It has Python, curl and uv, and no Java, make or checkout."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        # curl is for the reader of the README.
        make_debian(self.root, "ca-certificates", "curl", "python3")
        shutil.copy(UV, self.root / "usr" / "local" / "bin" / "uv")

    def add_user(self, name: str, number: int) -> None:
        add = ["useradd", "--create-home", "--base-dir=/srv", f"--uid={number}", name]
        subprocess.run(["chroot", str(self.root), *add], check=True)

    def words(self, visitor: Visitor, *words: str) -> list[str]:
        """Return the command line of a program of the visitor."""
        told = {
            **{name: value for name, value in os.environ.items() if name.startswith(_OF_UV)},
            **{name: value for name, value in os.environ.items() if name.endswith("_proxy")},
            **java_options(),
            "HOME": visitor.home,
            "PATH": f"/srv/reader/.local/bin:{os.defpath}:/usr/local/bin",
            "COLUMNS": "200",
            **visitor.environ,
        }
        variables = [f"{name}={value}" for name, value in told.items()]
        user = f"{visitor.number}:{visitor.number}"
        # Without this the groups of the test's own user remain.
        chroot = ["chroot", f"--userspec={user}", "--groups=", str(self.root)]
        inside = ["env", "-i", *variables, "sh", "-c", 'cd /tmp && exec "$@"', "sh", *words]
        mode = f"READ_ONLY={'yes' if visitor.is_read_only else ''}"
        enter = ["env", mode, "unshare", "--mount", "sh", "-ec", _ENTER, str(self.root)]
        return [*enter, *chroot, *inside]

    def run(self, visitor: Visitor, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(visitor, *words), capture_output=True, check=False, text=True, timeout=600
        )

    @contextmanager
    def up(self, visitor: Visitor, command: str) -> Iterator[float]:
        """Run all of Hifi; give the seconds of its start, and require an orderly end."""
        said = self.root / "tmp" / f"up-{visitor.number}.log"
        began_s = time.monotonic()
        with said.open("wb") as log:
            # The process becomes the command.
            process = subprocess.Popen(
                self.words(visitor, *command.split()), stdout=log, stderr=log
            )
        try:
            while "Ctrl-C drains" not in said.read_text():
                assert process.poll() is None, said.read_text()
                assert time.monotonic() < began_s + _START_S, said.read_text()
                time.sleep(_LOOK_S)
            yield time.monotonic() - began_s
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(PATIENCE_S)
        assert code == 0, said.read_text()
