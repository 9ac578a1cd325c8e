"""Finds the Java that runs Kafka and Spark, and says in one sentence what to do without one."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from shared.runtime.setup_error import SetupError

# Spark 4 and Kafka 4 brokers both state Java 17 as their minimum.
JAVA_MAJOR_MIN = 17
# `java -version` takes 0.1 s; a first start from a cold disk was seen to take 2 s.
_VERSION_TIMEOUT_S = 30.0
_INSTALL = (
    "install it with `sudo apt-get install openjdk-17-jre-headless` (Debian, Ubuntu) or "
    "`brew install openjdk@17` (macOS), or set JAVA_HOME to a Java 17 or 21"
)


@dataclass(frozen=True, slots=True)
class Java:
    path: Path
    version: str


def find_java() -> Java:
    """The Java of JAVA_HOME, else of PATH; SetupError when there is none or it is too old."""
    path = _locate()
    try:
        answer = subprocess.run(
            [path, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{path} cannot be run ({error}): {_INSTALL}.") from error
    parsed = java_version(answer.stderr + answer.stdout)
    if answer.returncode != 0 or parsed is None:
        # macOS ships a /usr/bin/java that only says that there is no Java.
        raise SetupError(f"{path} is not a working Java: {_INSTALL}.")
    version, major = parsed
    if major < JAVA_MAJOR_MIN:
        raise SetupError(
            f"Java {JAVA_MAJOR_MIN} or newer is needed, and {path} is Java {major}: {_INSTALL}."
        )
    return Java(path, version)


def java_version(text: str) -> tuple[str, int] | None:
    """The version that `java -version` prints, and its major; None when there is none."""
    # Up to Java 8 the major version stood in the second place: 1.8.0_402.
    match = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', text)
    return (match[1], int(match[2])) if match else None


def _locate() -> Path:
    home = os.environ.get("JAVA_HOME", "")
    if home:
        path = Path(home) / "bin" / "java"
        if not path.is_file():
            raise SetupError(
                f"JAVA_HOME is {home}, but there is no {path}: unset JAVA_HOME, or {_INSTALL}."
            )
        return path
    on_path = shutil.which("java")
    if on_path is None:
        raise SetupError(
            f"Java {JAVA_MAJOR_MIN} or newer is needed for Kafka and Spark, and none was found "
            f"in JAVA_HOME or PATH: {_INSTALL}."
        )
    return Path(on_path)
