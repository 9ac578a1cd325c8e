"""Builds the files of a release into a folder: packages, chart, bills of materials, checksums.

`make release-files` builds them into dist/, which the workflow publishes.
"""

import hashlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from deploy.release.boms import written_boms
from deploy.release.tools import ROOT, attempt, run
from deploy.release.versions import CHART, version
from shared.runtime.setup_error import SetupError

SUMS = "SHA256SUMS"


def build(folder: Path, *, needs_all: bool = False) -> Iterator[str]:
    """Build everything into an empty folder; yield what is missing or incomplete."""
    for project in (".", "clients/python"):
        run("uv", "build", "--quiet", "--python", sys.executable, "--out-dir", str(folder), project)
    (folder / ".gitignore").unlink(missing_ok=True)
    pack = ("npm", "pack", "--silent", "--pack-destination", str(folder), "./clients/javascript")
    yield from attempt(*pack, source="Node", needs_all=needs_all)
    if (ROOT / CHART).exists():
        chart = ("helm", "package", str(CHART), "--destination", str(folder))
        yield from attempt(*chart, source="Helm", needs_all=needs_all)
    texts, wrong = written_boms(version())
    yield from wrong
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    sums = (f"{_sha256(path)}  {path.name}\n" for path in sorted(folder.iterdir()))
    (folder / SUMS).write_text("".join(sums), encoding="utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(folder: Path) -> int:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        wrong = list(build(folder.absolute(), needs_all=True))
    except SetupError as error:
        wrong = [str(error)]
    sys.stderr.write("".join(f"{each}\n" for each in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
