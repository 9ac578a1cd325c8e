"""Makes the JAVA_HOME folder for Spark's launcher, with a Java that starts silently.

The launcher adds a module of vector instructions to each command, which only Spark's machine
learning uses. A Java without that module, such as the wheel's, would not start with it.

Java announces the options in JAVA_TOOL_OPTIONS on standard error, which is our log. As arguments it
takes them silently. Only Java itself can read options with quotes.
"""

import shlex
from pathlib import Path

from shared.runtime.files.whole_file import write_whole
from shared.runtime.java.java import Java

_PROGRAM = """#!/bin/sh
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
options=${{JAVA_TOOL_OPTIONS-$HIFI_JAVA_TOOL_OPTIONS}}
case $options in
  *[\\"\\']*) ;;
  *)
    set -f
    set -- $options "$@"
    unset JAVA_TOOL_OPTIONS
    # For the executors that this Java starts.
    export HIFI_JAVA_TOOL_OPTIONS="$options" ;;
esac
exec {java} "$@"
"""


def home_for_spark(java: Java, *, folder: Path) -> Path:
    """Make and return a subfolder whose `bin/java` does both."""
    program = folder.absolute() / "java" / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    text = _PROGRAM.format(java=shlex.quote(str(java.path.absolute())))
    # A full disk must not keep a service from restarting.
    if not program.is_file() or program.read_text() != text:
        write_whole(program, text.encode(), mode=0o755)
    return program.parent.parent
