"""Runs every benchmark there is, one after the other; `python -m benchmarks.NAME` runs one."""

import importlib
import pkgutil

import benchmarks

_NOT_BENCHMARKS = {
    "__main__",
    "audit_pace",
    "backlog",
    "client_load",
    "delivery_driver",
    "delivery_rates",
    "events",
    "lag_sink",
    "machine",
    "paced",
    "process_tree",
    "raw_produce",
    "read_body",
    "retrier_fill",
    "sink",
    "wrk",
}


def main() -> None:
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if module.name not in _NOT_BENCHMARKS:
            print(f"\n== {module.name}")
            entry = f"{module.name}.__main__" if module.ispkg else module.name
            importlib.import_module(f"benchmarks.{entry}").main()


if __name__ == "__main__":
    main()
