"""Prints the licences of everything in an image that Hifi did not write, for its file NOTICE."""

import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from shared.runtime.java.jars import read_lock

_OURS = "hifi-streams"
_LINE = "=" * 79


def main() -> None:
    sys.stdout.write("\n".join(_notice()) + "\n")


def _notice() -> Iterator[str]:
    yield "Hifi, Apache License 2.0. This image also has the software below; Debian's own packages"
    yield "have their licences in /usr/share/doc."
    found = {each.metadata["Name"]: each for each in distributions()}
    for name in sorted(found, key=str.lower):
        if name != _OURS:
            yield from _package(name, found[name])
    if "pyspark" in found:
        yield from ("", _LINE, "Jars for Spark, all Apache License 2.0:", "")
        lock = read_lock()
        yield from (f"  {jar.coordinate}" for jar in (*lock["spark"], *lock["msk"]))
        yield "  and those in pyspark/jars, whose licences are in pyspark/licenses"


def _package(name: str, package: Distribution) -> Iterator[str]:
    about: dict[str, Any] = package.metadata.json
    licence = about.get("license_expression") or _classified(about.get("classifier") or [])
    named = licence or str(about.get("license") or "see its files").splitlines()[0]
    yield from ("", _LINE, f"{name} {package.version}: {named}")
    for text in _texts(package):
        yield from ("", text)


def _classified(classifiers: list[str]) -> str:
    said = (each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License ::"))
    return ", ".join(said)


def _texts(package: Distribution) -> Iterator[str]:
    """Yield the texts of a package's licence files."""
    for file in package.files or []:
        is_notice = file.name.upper().startswith(("LICEN", "NOTICE", "COPYING"))
        if ".dist-info" in str(file) and is_notice:
            yield Path(str(file.locate())).read_text(encoding="utf-8", errors="replace").strip()


if __name__ == "__main__":
    main()
