"""Builds the two images with docker, podman or buildah: `make images BUILDER=buildah`.

The context is a folder with only the wheel and the locked requirements, so that builders of all
kinds get the same few files, and none of them needs a checkout or uv.
"""

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from shared.runtime.setup_error import SetupError

IMAGES = ("gateway", "engine")
_ROOT = Path(__file__).parents[2]
_CONTEXT = _ROOT / "build" / "images"
# The extras of each image; an engine's Java comes with a wheel, too.
_EXTRAS = {
    "gateway": ("gateway", "msk"),
    "engine": ("delivery", "retrier", "pipelines", "observe", "java", "msk"),
}


def main(builder: str, options: list[str]) -> None:
    """Build both images; `options` go to the builder as they are."""
    if shutil.which(builder) is None:
        sys.exit(
            f"make images: there is no {builder} here: name another builder, such as"
            " `make images BUILDER=podman`."
        )
    prepare()
    for image in IMAGES:
        name = f"hifi-{image}:{version('hifi-streams')}"
        file = Path(__file__).with_name("Dockerfile")
        # Docker's own format: the others' default has no health checks.
        form = [] if Path(builder).name == "docker" else ["--format", "docker"]
        command = [builder, "build", *form, "--file", file, "--target", image, "--tag", name]
        ended = subprocess.run([*map(str, command), *options, str(_CONTEXT)], check=False)
        if ended.returncode != 0:
            sys.exit(f"make images: {builder} could not build {name}: see its last lines.")
        sys.stdout.write(f"built {name}\n")


def prepare() -> Path:
    """Put the wheel and the requirements of each image into the context; return it."""
    shutil.rmtree(_CONTEXT, ignore_errors=True)
    _CONTEXT.mkdir(parents=True)
    _uv("build", "--wheel", "--out-dir", str(_CONTEXT))
    (_CONTEXT / ".gitignore").unlink(missing_ok=True)
    for image, extras in _EXTRAS.items():
        wanted = [word for extra in extras for word in ("--extra", extra)]
        only = ("--no-default-groups", "--no-emit-project", "--no-annotate")
        _uv("export", "--frozen", *wanted, *only, "--output-file", str(_CONTEXT / f"{image}.txt"))
    return _CONTEXT


def _uv(*arguments: str) -> None:
    uv = _ROOT / ".tools" / "bin" / "uv"
    ended = subprocess.run(
        [str(uv), *arguments, "--quiet"], cwd=_ROOT, capture_output=True, check=False, text=True
    )
    if ended.returncode != 0:
        raise SetupError(f"uv {arguments[0]} failed: {ended.stderr.strip()}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
