"""Makes the folder that Spark's launcher gets as JAVA_HOME.

The launcher adds a module of vector instructions to each command, which only Spark's machine
learning uses. A Java without that module, as the wheel's is, does not start with it.
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
    """A folder in this one, whose `bin/java` leaves that module out."""
    program = folder.absolute() / "java" / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    text = _WITHOUT_THE_MODULE.format(java=shlex.quote(str(java.path.absolute())))
    # A full disk must not keep a service from starting again.
    if not program.is_file() or program.read_text() != text:
        write_whole(program, text.encode(), mode=0o755)
    return program.parent.parent
