"""Finds the Java that runs Kafka and Spark, and says in one sentence what to do without one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shared.runtime.setup_error import SetupError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    major: int
    version: str


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The Java of JAVA_HOME, else of PATH; SetupError when there is none or it is too old."""
    environ = os.environ if environ is None else environ
    path = _locate(environ)
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
    version = java_version(answer.stderr + answer.stdout)
    if answer.returncode != 0 or version is None:
        # macOS ships a /usr/bin/java that only says that there is no Java.
        raise SetupError(f"{path} is not a working Java: {_INSTALL}.")
    major = java_major(version)
    if major < JAVA_MAJOR_MIN:
        raise SetupError(
            f"Java {JAVA_MAJOR_MIN} or newer is needed, and {path} is Java {major}: {_INSTALL}."
        )
    return Java(path=path, major=major, version=version)


def java_version(text: str) -> str | None:
    """The version inside what `java -version` prints, or None when there is none."""
    match = re.search(r'version "([^"]+)"', text)
    return match.group(1) if match else None


def java_major(version: str) -> int:
    """17 for "17.0.15", 8 for "1.8.0_402", 26 for "26-ea"; 0 for what is no version."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    if not numbers:
        return 0
    if numbers[0] == 1 and len(numbers) > 1:
        # Up to Java 8 the major version stood in the second place.
        return numbers[1]
    return numbers[0]


def _locate(environ: Mapping[str, str]) -> Path:
    home = environ.get("JAVA_HOME", "")
    if home:
        path = Path(home) / "bin" / "java"
        if not path.is_file():
            raise SetupError(
                f"JAVA_HOME is {home}, but there is no {path}: unset JAVA_HOME, or {_INSTALL}."
            )
        return path
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is None:
        raise SetupError(
            f"Java {JAVA_MAJOR_MIN} or newer is needed for Kafka and Spark, and none was found "
            f"in JAVA_HOME or PATH: {_INSTALL}."
        )
    return Path(on_path)
