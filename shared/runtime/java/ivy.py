"""Runs the Ivy that ships inside pyspark: it fetches jars by coordinate from the package registry.

No registry is named here: Ivy knows its own default, and a company with a mirror of its own
passes an Ivy settings file.
"""

from __future__ import annotations

import subprocess
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from shared.runtime.setup_error import SetupError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shared.runtime.java.java import Java

# The 46 broker jars took 13 s here; ten minutes is a slow mobile link (0.6 Mbit/s) for 44 MB.
_FETCH_TIMEOUT_S = 600.0
# Without poms Ivy asks for the jars alone, which saves 38 of 52 s over resolving transitively.
# Its own checksum files are not asked for either: the lock has SHA-256, and it is checked here.
_SETTINGS = """<ivysettings>
  <settings defaultResolver="jars"/>
  <resolvers><ibiblio name="jars" m2compatible="true" usepoms="{poms}"/></resolvers>
</ivysettings>
"""


@dataclass(frozen=True, slots=True, order=True)
class Coordinate:
    group: str
    artifact: str
    version: str

    @classmethod
    def parse(cls, text: str) -> Coordinate:
        group, artifact, version = text.split(":")
        return cls(group, artifact, version)

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def run_ivy(
    wanted: Sequence[Coordinate],
    *,
    pattern: str,
    work: Path,
    java: Java,
    settings: Path | None,
    transitive: bool = False,
    on_line: Callable[[str], None] = lambda _: None,
) -> None:
    """Fetch what is wanted to the places that Ivy's `pattern` names; SetupError when it fails."""
    work.mkdir(parents=True, exist_ok=True)
    own_settings = work / "ivysettings.xml"
    own_settings.write_text(_SETTINGS.format(poms=str(transitive).lower()))
    (work / "ivy.xml").write_text(ivy_xml(wanted, transitive=transitive))
    argv = [str(java.path), "-Xmx256m", "-Divy.checksums=", "-jar", str(_ivy_jar())]
    argv += ["-cache", str(work / "cache"), "-settings", str(settings or own_settings)]
    argv += ["-ivy", str(work / "ivy.xml"), "-confs", "default", "-retrieve", pattern]
    ivy = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    deadline = threading.Timer(_FETCH_TIMEOUT_S, ivy.kill)
    deadline.start()
    lines: list[str] = []
    try:
        assert ivy.stdout is not None
        for line in ivy.stdout:
            lines.append(line.rstrip())
            on_line(lines[-1])
        code = ivy.wait()
    finally:
        deadline.cancel()
        ivy.kill()
        ivy.wait()
        assert ivy.stdout is not None
        ivy.stdout.close()
    if code != 0:
        raise SetupError(
            "Set-up needs the package registry once, to fetch jars, and could not reach it or "
            f"find a jar there (Ivy said: {last_error(lines)}): check the network, or name your "
            "own mirror in an Ivy settings file, and run again."
        )


def ivy_xml(wanted: Sequence[Coordinate], *, transitive: bool) -> str:
    # A module read without its pom has every artifact in every configuration.
    conf = "default->default" if transitive else "default->*"
    rows = "\n".join(
        f"    <dependency org={quoteattr(artifact.group)} name={quoteattr(artifact.artifact)} "
        f"rev={quoteattr(artifact.version)} conf={quoteattr(conf)} "
        f'transitive="{str(transitive).lower()}"/>'
        for artifact in wanted
    )
    return (
        '<ivy-module version="2.0">\n'
        '  <info organisation="hifi" module="jars"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{rows}\n  </dependencies>\n"
        "</ivy-module>\n"
    )


def fetched(line: str) -> Coordinate | None:
    """The coordinate in Ivy's line about a finished download, or None for any other line."""
    words = line.split()
    if len(words) < 3 or words[0] != "[SUCCESSFUL" or words[1] != "]":  # noqa: PLR2004 - see below
        # Such a line reads: [SUCCESSFUL ] group#artifact;version!file.jar (12ms)
        return None
    group, _, rest = words[2].partition("#")
    artifact, _, rest = rest.partition(";")
    version, mark, _ = rest.partition("!")
    return Coordinate(group, artifact, version) if mark else None


def last_error(lines: Sequence[str]) -> str:
    """The line that tells most about a failure: the last one with a cause, else the last one."""
    for mark in ("Exception", "Host ", "FAILED", "not found", "ERROR", "rror"):
        for line in reversed(lines):
            if mark in line:
                return line.strip(" \t:")
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")


def _ivy_jar() -> Path:
    # Only its place is asked for: importing pyspark costs 0.5 s.
    spec = find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or []:
        for jar in sorted(Path(folder).glob("jars/ivy-*.jar")):
            return jar
    raise SetupError(
        "pyspark, whose Ivy fetches the jars, is not installed in this environment: "
        "run `uv sync --all-extras` and try again."
    )
