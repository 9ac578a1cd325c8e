"""Makes the JAVA_HOME folder for Spark's launcher.

The launcher adds a module of vector instructions to each command, which only Spark's machine
learning uses. A Java without that module, such as the wheel's, would not start with it.
"""

import shlex
from pathlib import Path

from shared.runtime.files.whole_file import write_whole
from shared.runtime.java.java import Java

_WITHOUT_THE_MODULE = """#!/bin/sh
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


def home_for_spark(java: Java, *, folder: Path) -> Path:
    """Make and return a subfolder whose `bin/java` leaves that module out."""
    program = folder.absolute() / "java" / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    text = _WITHOUT_THE_MODULE.format(java=shlex.quote(str(java.path.absolute())))
    # A full disk must not keep a service from restarting.
    if not program.is_file() or program.read_text() != text:
        write_whole(program, text.encode(), mode=0o755)
    return program.parent.parent
