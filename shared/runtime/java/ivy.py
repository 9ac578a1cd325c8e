"""Runs the Ivy in pyspark, which fetches jars by coordinate from the package registry.

No registry is named here: Ivy has its own default, and a company with its own mirror passes an Ivy
settings file.
"""

import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from xml.sax.saxutils import quoteattr

from shared.runtime.java.java import find_java
from shared.runtime.setup_error import SetupError

# The 46 broker jars took 13 s; 10 min is enough for 44 MB over a slow mobile link (0.6 Mbit/s).
_FETCH_TIMEOUT_S = 600.0
# Without poms Ivy requests only the jars, which takes 14 s instead of 52 s with poms. It does not
# request checksum files either: our lock has SHA-256 digests, which are checked here.
_SETTINGS = """<ivysettings>
  <settings defaultResolver="jars"/>
  <resolvers><ibiblio name="jars" m2compatible="true" usepoms="{poms}"/></resolvers>
</ivysettings>
"""
# The path of a jar, which shows its coordinate.
_PLACE = "[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
# Ivy's line about a finished download: [SUCCESSFUL ] group#artifact;version!file.jar (12ms)
_FETCHED = re.compile(r"\[SUCCESSFUL \] (.+)#(.+);(.+)!")


def file_name(coordinate: str) -> str:
    """Return the file name of the jar group:artifact:version, or ...:version:classifier."""
    return f"{'-'.join(coordinate.split(':')[1:])}.jar"


def module_of(coordinate: str) -> str:
    """Return group:artifact:version of a jar."""
    return ":".join(coordinate.split(":")[:3])


@contextmanager
def fetched_jars(
    wanted: Sequence[str],
    *,
    folder: Path | None = None,
    settings: Path | None,
    transitive: bool = False,
    on_line: Callable[[str], object],
) -> Iterator[list[Path]]:
    """Fetch jars to a folder that exists during the block; raise SetupError on failure.

    Ivy's own cache is in the same folder, so a bad download is never reused later.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix="fetch-") as temporary:
        work = Path(temporary)
        own_settings = work / "ivysettings.xml"
        own_settings.write_text(_SETTINGS.format(poms=str(transitive).lower()))
        (work / "ivy.xml").write_text(ivy_xml(wanted, transitive=transitive))
        argv = [str(find_java().path), "-Xmx256m", "-Divy.checksums=", "-jar", str(_ivy_jar())]
        argv += ["-cache", str(work / "cache"), "-settings", str(settings or own_settings)]
        argv += ["-ivy", str(work / "ivy.xml"), "-confs", "default"]
        _run([*argv, "-retrieve", f"{work}/jars/{_PLACE}"], on_line)
        yield sorted(work.glob("jars/*/*/*/*.jar"))


def _run(argv: Sequence[str], on_line: Callable[[str], object]) -> None:
    lines: list[str] = []
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as ivy:
        deadline = threading.Timer(_FETCH_TIMEOUT_S, ivy.kill)
        deadline.start()
        try:
            for line in ivy.stdout or ():
                lines.append(line.rstrip())
                on_line(lines[-1])
            code = ivy.wait()
        finally:
            deadline.cancel()
            ivy.kill()
    if code != 0:
        raise SetupError(
            "Set-up needs the package registry once, to fetch jars, but could not reach it or "
            f"find a jar there (Ivy said: {last_error(lines)}): check the network, or set your "
            "own mirror in an Ivy settings file, and run again."
        )


def ivy_xml(wanted: Sequence[str], *, transitive: bool) -> str:
    # A module read without its pom has every artifact in every configuration.
    conf = "default->default" if transitive else "default->*"
    rows = "\n".join(
        f"    <dependency org={quoteattr(group)} name={quoteattr(artifact)} "
        f"rev={quoteattr(version)} conf={quoteattr(conf)} "
        f'transitive="{str(transitive).lower()}"{_end(artifact, *classifier)}'
        for group, artifact, version, *classifier in (each.split(":") for each in wanted)
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">\n'
        '  <info organisation="hifi" module="jars"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{rows}\n  </dependencies>\n"
        "</ivy-module>\n"
    )


def _end(artifact: str, classifier: str = "") -> str:
    """Return the end of a dependency, which names the jar if the module has several."""
    if not classifier:
        return "/>"
    jar = f'<artifact name={quoteattr(artifact)} type="jar" m:classifier={quoteattr(classifier)}/>'
    return f">{jar}</dependency>"


def fetched(line: str) -> str | None:
    """Return the module in Ivy's line about a finished download; None for other lines."""
    match = _FETCHED.search(line)
    return ":".join(match.groups()) if match else None


def last_error(lines: Sequence[str]) -> str:
    """Return the most informative line about a failure: the last one with a cause, or the last."""
    for word in ("Exception", "Host ", "FAILED", "not found", "ERROR", "rror"):
        for line in reversed(lines):
            if word in line:
                return line.strip(" \t:")
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")


def _ivy_jar() -> Path:
    try:
        # Only find its place: importing pyspark takes 0.5 s.
        jars = Path(str(distribution("pyspark").locate_file("pyspark/jars")))
        return next(jars.glob("ivy-*.jar"))
    except (PackageNotFoundError, StopIteration):
        raise SetupError(
            "pyspark, whose Ivy fetches the jars, is not installed in this environment: "
            "run `uv sync --all-extras` and try again."
        ) from None
