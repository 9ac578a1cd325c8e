"""Makes steps of a rating in the form of Locust's."""

from typing import Any

from loadtests.recorder import PERCENTILES


def step_of(rate: float, verdict: str, p99_ms: float) -> dict[str, Any]:
    due = {f"p{each:g}": round(p99_ms * (0.02 + each / 120), 3) for each in PERCENTILES}
    return {
        "events_per_s": rate,
        "acked_per_s": min(rate, 61_000),
        "verdict": verdict,
        "reasons": [] if verdict == "met" else [f"p99 {p99_ms} ms, 100 ms promised"],
        "planned": 0.6 * rate,
        "measured_s": 60,
        "sent": round(rate * 0.6),
        "due_ms": {**due, "p99": p99_ms},
        "service_ms": {name: value / 2 for name, value in due.items()},
        "late_ms": {"p99": 2.5},
        "cpu_share": 0.41,
        "seconds": [[second, rate / 100, rate / 100, rate] for second in range(15, 75)],
    }
