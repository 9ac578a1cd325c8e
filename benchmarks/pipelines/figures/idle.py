"""Measures the pipelines process with ten idle pipelines on ten streams."""

import time

from benchmarks.pipelines.bench import Bench, Runner, pipeline_of

_PIPELINES = 10
_IDLE_S = 20.0
# Time for the work after a start, such as compilation, to end.
_SETTLE_S = 10.0


def measure(bench: Bench) -> dict[str, float]:
    """Measure ten pipelines, and none for comparison, which needs no JVM."""
    with bench.running() as runner:
        none_cores, none_mb = _settled(runner)
        where = {"where": "made_ns > 0"}
        idle = [
            pipeline_of(f"idle-{number}", f"idle{number}", where) for number in range(_PIPELINES)
        ]
        runner.put(*idle)
        for pipeline in idle:
            runner.wait_until_up(pipeline)
        cores, mb = _settled(runner)
    return {
        "idle_cores_10": round(cores, 3),
        "idle_mb_10": mb,
        "idle_cores_0": round(none_cores, 3),
        "idle_mb_0": none_mb,
    }


def _settled(runner: Runner) -> tuple[float, int]:
    time.sleep(_SETTLE_S)
    return runner.used(_IDLE_S)
