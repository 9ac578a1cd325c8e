"""Starts the installed programs; if a package is missing, one sentence says what to install."""

import sys
from functools import partial
from importlib import import_module
from importlib.util import find_spec

_WHEEL = "hifi-streams"
# The command's extra, a gateway's, and the one with all packages.
_EXTRAS = ("cli", "gateway", "local")
# Distributions that are not named like the package that they contain.
_DISTRIBUTIONS = {"jwt": "pyjwt", "yaml": "pyyaml"}


def _start(program: str, module: str, *, extra: str = "") -> None:
    """Run the module's main function; exit with 1 and a sentence if a package is missing."""
    try:
        import_module(module).main()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or find_spec(package) is not None:
            raise
        extra = extra or _extra_with(package)
        sys.exit(
            f"{program}: the package {package} is not installed. Install Hifi with the extra"
            f' {extra}: uv tool install "{_WHEEL}[{extra}]", or pip install "{_WHEEL}[{extra}]".'
        )


def _extra_with(package: str) -> str:
    """Return the smallest extra that installs a package."""
    # Every command would wait for this import.
    from importlib.metadata import requires  # noqa: PLC0415

    wanted = _DISTRIBUTIONS.get(package, package.replace("_", "-"))
    lines = [line for line in requires(_WHEEL) or [] if line.lower().startswith(wanted)]
    named = (each for each in _EXTRAS if any(f"extra == '{each}'" in line for line in lines))
    return next(named, _EXTRAS[-1])


def gateway() -> None:
    """Run `hifi gateway`, which has HIFI_GATEWAY_WORKERS processes."""
    sys.argv[1:1] = ["gateway"]
    _start("hifi gateway", "deploy.cli.app", extra="gateway")


hifi = partial(_start, "hifi", "deploy.cli.app")
health = partial(_start, "hifi-health", "deploy.health")
delivery, retrier, pipelines, observe = (
    partial(_start, f"hifi {service}", f"{service}.__main__", extra=service)
    for service in ("delivery", "retrier", "pipelines", "observe")
)
