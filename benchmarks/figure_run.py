"""Runs the measurements of a bench, each a module of a folder, on one common Kafka."""

import importlib
import pkgutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from benchmarks.pipelines.bench import Bench, make_streams
from benchmarks.report import report
from deploy.local.cluster import Cluster
from shared.runtime.java.cache_folder import default_cache

Measure = Callable[[Bench], dict[str, float]]
_SHORT = "--short"


def run_figures(figures: ModuleType) -> None:
    """Run all or the named measurements; print a table, and one JSON object as the last line."""
    given = sys.argv[1:]
    wanted = [part for part in given if part != _SHORT]
    parts = _parts(figures)
    measured: dict[str, float] = {"errors": 0}
    with (
        tempfile.TemporaryDirectory() as name,
        Cluster(folder=Path(name) / "kafka", cache=default_cache()) as cluster,
    ):
        servers = cluster.bootstrap_servers
        make_streams(servers, [])
        print(f"| figure | value |\n|{'---|' * 2}")
        for part in wanted or parts:
            here = parts[part](Bench(servers, Path(name) / part, is_short=_SHORT in given))
            for what, figure in here.items():
                print(f"| {what} | {figure:,} |", flush=True)
            errors = measured["errors"] + here.pop("errors", 0)
            measured |= {**here, "errors": errors}
    bench = figures.__name__.split(".")[1]
    report(bench, measured, is_whole=_SHORT not in given)


def _parts(figures: ModuleType) -> dict[str, Measure]:
    names = [module.name for module in pkgutil.iter_modules(figures.__path__)]
    return {
        name.replace("_", "-"): importlib.import_module(f"{figures.__name__}.{name}").measure
        for name in names
    }
