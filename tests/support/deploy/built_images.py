"""Builds the two images with buildah, and runs programs in containers of them.

Chroot isolation and plain copies of files (vfs) work wherever root works, without a container
engine. Containers share the network of the calling thread.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from tests.support.deploy.debian import java_options, make_debian
from tests.tidy.sources import ROOT

_BASE = "localhost/hifi-base:bookworm"
# Certificates and settings with which this machine reaches package registries, if they exist.
_OF_THE_MACHINE = (
    "/etc/ssl/certs",
    "/etc/pip.conf",
    "/etc/apt/apt.conf.d",
    "/etc/apt/sources.list",
)
_USER = "10001:10001"
# Mounts what a container engine mounts, and becomes the program.
_READ_ONLY = """
mount --bind "$0" "$0"
mount -t proc proc "$0/proc"
mount --bind /dev "$0/dev"
mount --bind /etc/resolv.conf "$0/etc/resolv.conf" 2>/dev/null || true
mount -t tmpfs -o mode=1777 tmpfs "$0/tmp"
mount -t tmpfs -o uid=10001,gid=10001 tmpfs "$0/var/lib/hifi"
mount -o remount,bind,ro "$0"
exec "$@"
"""


class BuiltImages:
    """Images in a store of their own, which is deleted with the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        store = ("--root", str(folder / "store"), "--runroot", str(folder / "run"))
        self._buildah = ("buildah", *store, "--storage-driver", "vfs")
        self._containers: list[str] = []

    def build(self) -> None:
        self._make_base()
        mounts = [
            word
            for path in _OF_THE_MACHINE
            if Path(path).exists()
            for word in ("--volume", f"{path}:{path}:ro")
        ]
        given = [f"BASE={_BASE}", *(f"{name}={value}" for name, value in java_options().items())]
        arguments = [word for each in given for word in ("--build-arg", each)]
        options = ["--isolation", "chroot", *arguments, *mounts]
        builder = self._folder / "builder"
        builder.write_text("#!/bin/sh\nexec " + " ".join(self._buildah) + ' "$@"\n')
        builder.chmod(0o755)
        made = subprocess.run(
            [sys.executable, "-m", "deploy.images.build", str(builder), *options],
            cwd=ROOT,
            check=False,
            capture_output=True,
            text=True,
        )
        assert made.returncode == 0, made.stdout[-3_000:] + made.stderr[-3_000:]

    def size_bytes(self, image: str) -> int:
        """Return the bytes of all files of an image."""
        mounted = self._said("mount", self.container(image))
        used = subprocess.run(["du", "-sb", mounted], check=True, capture_output=True, text=True)
        return int(used.stdout.split()[0])

    def container(self, image: str) -> str:
        """Make a container of an image; return its name."""
        name = self._said("from", f"localhost/hifi-{image}:{version('hifi-streams')}")
        self._containers.append(name)
        return name

    def root_of(self, container: str) -> Path:
        return Path(self._said("mount", container))

    def read_only(
        self,
        container: str,
        *words: str,
        env: Mapping[str, str] | None = None,
        user: str = _USER,
    ) -> list[str]:
        """Return the command line of a program whose root file system is read-only.

        buildah has no option for that, so the container's root is mounted here as an engine would.
        """
        root = self.root_of(container)
        variables = {**self._variables(container), **(env or {})}
        told = [f"{name}={value}" for name, value in variables.items()]
        chroot = ["chroot", f"--userspec={user}", str(root), "/usr/bin/env", "-i", *told]
        return ["unshare", "--mount", "sh", "-ec", _READ_ONLY, str(root), *chroot, *words]

    def _variables(self, container: str) -> dict[str, str]:
        said = json.loads(self._said("inspect", container))
        pairs = (pair.partition("=") for pair in said["OCIv1"]["config"]["Env"])
        return {name: value for name, _, value in pairs}

    def delete_containers(self) -> None:
        for name in self._containers:
            subprocess.run([*self._buildah, "rm", name], check=False, capture_output=True)

    def _make_base(self) -> None:
        """Import a minimal Debian as an image."""
        tar = self._folder / "base.tar"
        # Its installation writes to a folder that the builds have from this machine.
        make_debian(tar, "ca-certificates")
        empty = self._said("from", "scratch")
        self._said("add", empty, str(tar), "/")
        self._said("commit", "--rm", empty, _BASE)

    def _said(self, *words: str) -> str:
        ended = subprocess.run(
            [*self._buildah, *words], check=False, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()
