"""Installs the package of functions in tests/packages, like its wheel."""

import tomllib
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "packages" / "hifi_fraud"


def install(folder: Path) -> Path:
    """Install the package in a folder for Python's path, with its metadata beside it."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    named, version = project["name"].replace("-", "_"), project["version"]
    facts = folder / f"{named}-{version}.dist-info"
    facts.mkdir(parents=True, exist_ok=True)
    (folder / f"{named}.py").write_text((PACKAGE / f"{named}.py").read_text())
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {named}\nVersion: {version}\n")
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {what}" for name, what in points.items()))
    ]
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder
