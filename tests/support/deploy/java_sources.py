"""Runs Java programs from source on the Java that runs Kafka, which may lack a compiler."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from shared.runtime.java.cache_folder import default_cache
from shared.runtime.java.ivy import fetched_jars, file_name
from shared.runtime.java.jars import sha256_of
from shared.runtime.java.java import find_java

# Eclipse's compiler, one jar of 3 MB that runs on Java 17 and newer.
_COMPILER = "org.eclipse.jdt:ecj:3.44.0"
_SHA256 = "14c46ddc2e511c46c998da728f6a80f13a689c920f3832402f7ad150f6a6188d"


def java_program(source: Path, folder: Path) -> list[str]:
    """Compile a program for Java 17 into a folder; return the command that runs it."""
    java = str(find_java().path)
    compiler = [java, "-jar", str(_compiler()), "-17", "-nowarn", "-proc:none"]
    ended = subprocess.run(
        [*compiler, "-d", str(folder), str(source)],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return [java, "-cp", str(folder), source.stem]


def has_compiler() -> bool:
    """Return whether `java File.java` works for a person here."""
    if (java := shutil.which("java")) is None:
        return False
    listed = subprocess.run([java, "--list-modules"], capture_output=True, check=False, timeout=60)
    return b"\njdk.compiler@" in listed.stdout


def make_java(folder: Path, source: Path) -> None:
    """Make a program `java` in a folder, which runs that source and no other."""
    command = shlex.join(java_program(source, folder / "classes"))
    program = folder / "java"
    program.write_text(f'#!/bin/sh\ntest "${{1##*/}}" = {source.name} && exec {command}\n')
    program.chmod(0o755)


def _compiler() -> Path:
    kept = default_cache() / "jars" / "tests" / file_name(_COMPILER)
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with fetched_jars([_COMPILER], settings=None, on_line=lambda _: None) as (jar,):
            aside = kept.with_suffix(f".{os.getpid()}")
            shutil.copy(jar, aside)
            aside.replace(kept)
    assert sha256_of(kept) == _SHA256, kept
    return kept
