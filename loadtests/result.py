"""Reports a step's results, in the same form for headless, browser and multi-process runs.

All shown, judged and stored results are made here, from a recorder and the plan.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from loadtests.arrivals import RatePlan, Spacing, hold, plan_of
from loadtests.recorder import Recorder, merged
from loadtests.slo import Slo, StepFigures, Verdict, judge

# The version of the format, for programs that read the JSON.
FORM = 1


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The plan of a step, in events per second; `plan` takes precedence over `rate`."""

    run: str
    stream: str
    rate: float = 1_000.0
    duration_s: float = 60.0
    warmup_s: float = 15.0
    plan: str = ""
    trace: RatePlan | None = None
    spacing: Spacing = "poisson"
    seed: int = 1
    batch: int = 100
    event_bytes: int = 500
    slo: Slo = field(default_factory=Slo)

    @property
    def events(self) -> RatePlan:
        """The plan of the measured part, in events a second."""
        if self.trace is not None:
            return self.trace
        return plan_of(self.plan) if self.plan else hold(self.rate, self.duration_s)

    @property
    def requests(self) -> RatePlan:
        """The plan of all requests: first the warm-up, then the measured ones."""
        measured = self.events.scaled(1 / self.batch)
        if not self.warmup_s:
            return measured
        return hold(measured.pieces[0].rate_from, self.warmup_s).then(measured)


def measured_of(asked: StepPlan, recorder: Recorder) -> StepFigures:
    """Return the figures for the verdict, without those of destinations."""
    return StepFigures(
        planned=asked.events.count / asked.batch,
        offered=recorder.counts["offered"],
        unsent=recorder.counts["unsent"],
        failed=recorder.counts["failed"],
        due_p99_ms=recorder.times["due"].ms(99),
        late_p99_ms=recorder.times["late"].ms(99),
        cpu_share=recorder.cpu_share,
    )


def document(asked: StepPlan, recorder: Recorder, *, is_complete: bool = True) -> dict[str, Any]:
    """Return the step's JSON. An interrupted step is invalid."""
    verdict = judge(asked.slo, measured_of(asked, recorder))
    if not is_complete:
        early = "it was stopped before the end of its plan"
        verdict = replace(verdict, word="invalid", reasons=(early, *verdict.reasons))
    plan, counts = asked.events, recorder.counts
    return {
        "form": FORM,
        "run": asked.run,
        "stream": asked.stream,
        "plan": asked.plan or ("trace" if asked.trace else f"hold:{asked.rate:g}"),
        "spacing": asked.spacing,
        "seed": asked.seed,
        "batch": asked.batch,
        "event_bytes": asked.event_bytes,
        "begun_us": recorder.begun_us,
        "warmup_s": asked.warmup_s,
        "measured_s": round(plan.duration_s, 3),
        "workers": max(1, len(recorder.used_s)),
        "events_per_s": round(plan.count / plan.duration_s, 1),
        "planned": round(plan.count / asked.batch, 1),
        "offered": counts["offered"],
        "sent": counts["sent"],
        "unsent": counts["unsent"],
        "failed": counts["failed"],
        "answers": dict(sorted(recorder.answers.items())),
        "acked_events": counts["acked"],
        "acked_per_s": round(counts["acked"] / plan.duration_s, 1),
        "due_ms": recorder.times["due"].table(),
        "service_ms": recorder.times["service"].table(),
        "late_ms": recorder.times["late"].table(),
        "cpu_share": round(recorder.cpu_share, 3),
        "due_hdr": recorder.times["due"].encoded(),
        "seconds": [[second, *row] for second, row in sorted(recorder.seconds.items())],
        "acked": [[worker, merged(ranges)] for worker, ranges in sorted(recorder.acked.items())],
        "slo": {"p99_ms": asked.slo.p99_ms, "error_share": asked.slo.error_share},
        **words(verdict),
    }


def words(verdict: Verdict) -> dict[str, Any]:
    return {"verdict": verdict.word, "reasons": list(verdict.reasons)}
