"""Describes a rating's subject, and writes its result: a file that `hifi plan` reads, and a page.

The whole rating is made here, from its plan and its steps. Its format is that of
shared/scale/ratings.py, with further members for its steps and its caveats.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from loadtests.report.sheet import sheet
from loadtests.result import FORM
from loadtests.search import Search
from loadtests.slo import BACKLOG_GROWTH_S_MAX, Slo
from shared.config.destination import Latency
from shared.scale.ask import DESTINATION_BATCH

What = Literal["gateway", "delivery", "whole"]

# The default objectives.
_PROMISED = {
    "gateway": Slo(p99_ms=100.0),
    "delivery": Slo(p99_ms=1_000.0),
    "whole": Slo(p99_ms=1_000.0, age_p95_ms=1_000.0),
}
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
# Results that are not ratings go into this folder, which `hifi plan` does not read.
_LOOKS = "looks"
# Members of a step's JSON that matter only during the run, or grow with its length.
_DROPPED = frozenset({"acked", "due_hdr", "begun_us", "slo", "form"})


@dataclass(frozen=True, slots=True)
class RatingPlan:
    """The subject and the steps of a rating. Rates are in events per second."""

    what: What = "gateway"
    gateway: str = "http://127.0.0.1:8080"
    api_key: str = ""
    # Searched for events that did not arrive.
    kafka: str = "127.0.0.1:9092"
    stream: str = "rating"
    batch: int = 100
    event_bytes: int = 500
    # Promises that replace the default ones.
    p99_ms: float | None = None
    age_p95_ms: float | None = None
    age_p99_ms: float | None = None
    start: float | None = None
    # One step at this rate instead of a search.
    rate: float | None = None
    hold_s: float = 60.0
    warmup_s: float = 15.0
    # The plan that a step follows instead of holding its rate, over the same time.
    plan: str = ""
    processes: int = 1
    # Without Locust, the generator takes half the processor time of shared cores.
    is_lean: bool = False
    # The latency mode of the destination.
    latency: Latency = "micro-batch"
    # The address at which delivery reaches this machine.
    sink_host: str = "127.0.0.1"
    # The rated machine's type, cores and gateway workers, which this machine cannot find out.
    instance: str = ""
    cores: int = 0
    workers: int = 1
    # Further caveats for readers.
    caveats: tuple[str, ...] = ()

    @property
    def objective(self) -> Slo:
        usual = _PROMISED[self.what]
        return replace(
            usual,
            p99_ms=self.p99_ms or usual.p99_ms,
            age_p95_ms=self.age_p95_ms or usual.age_p95_ms,
            age_p99_ms=self.age_p99_ms,
            backlog_share=BACKLOG_GROWTH_S_MAX / self.hold_s if self.what == "delivery" else None,
        )

    @property
    def first_rate(self) -> float:
        """A rate that most machines reach: two cores take 40,000 events/s in batches of 100."""
        if self.start is not None:
            return self.start
        gateway = min(40_000.0, 1_000.0 * math.pow(self.batch, 0.65))
        return gateway if self.what == "gateway" else gateway / 4

    @property
    def is_shared(self) -> bool:
        """Whether the generator and the rated services share a machine."""
        return (urlsplit(self.gateway).hostname or "") in _LOOPBACK


def rating_of(
    wanted: RatingPlan,
    search: Search,
    steps: Sequence[dict[str, Any]],
    generator: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the content of a rating's file. `generator`: the machine that ran it, and when."""
    slo = wanted.objective
    is_met = any(
        step["verdict"] == "met" and step["events_per_s"] >= search.low - 1 for step in steps
    )
    rated = {
        "cpu": generator["processor"] if wanted.is_shared else wanted.instance or "not named",
        "cores": wanted.cores or generator["cores"],
        "kernel": generator["kernel"] if wanted.is_shared else "",
        "instance": wanted.instance or None,
    }
    rating = {
        "form": FORM,
        "what": wanted.what,
        "machine": rated,
        "commit": generator["commit"],
        "at": generator["date"],
        "slo": {name: value for name, value in asdict(slo).items() if value is not None},
        "batch": DESTINATION_BATCH if wanted.what == "delivery" else wanted.batch,
        "posted_batch": wanted.batch,
        "bytes": wanted.event_bytes,
        "workers": wanted.workers,
        "latency": wanted.latency,
        "rated": round(search.low, 1) if is_met else 0.0,
        "not_at": None if search.high == math.inf else round(search.high, 1),
        "saturated": max((step["acked_per_s"] for step in steps), default=0.0),
        "is_confirmed": search.is_confirmed,
        "is_limited_by_generator": search.is_limited_by_generator,
        "shared": wanted.is_shared,
        "generator": {"processes": wanted.processes, **generator},
        "steps": [
            {name: value for name, value in step.items() if name not in _DROPPED} for step in steps
        ],
    }
    return {**rating, "caveats": [*caveats(rating), *wanted.caveats]}


def caveats(rating: Mapping[str, Any]) -> list[str]:
    """Return the warnings that the figure alone does not show."""
    warnings = []
    if rating["shared"]:
        warnings.append(
            "Generator, Hifi and Kafka shared a machine: compare this rating only with others like"
            " it, and do not size a fleet with it."
        )
    if not rating["shared"] and rating["machine"]["instance"] is None:
        warnings.append("The type of the rated machine was not given (--instance).")
    if not rating["rated"]:
        warnings.append("No step met the objective.")
    elif not rating["is_confirmed"]:
        warnings.append("The rated step was not repeated, or failed when repeated.")
    if rating["is_limited_by_generator"]:
        warnings.append(
            "The generator was the limit: the true rating may be higher. Give the generator more"
            " processes, or another machine."
        )
    seconds = min((step["measured_s"] for step in rating["steps"]), default=0)
    if seconds < 60:  # noqa: PLR2004 - as long as a step is by default
        warnings.append(
            f"Steps were measured for {seconds:g} s; only 60 s include work done once a minute."
        )
    return warnings


def keep(rating: dict[str, Any], folder: Path, *, is_rating: bool) -> tuple[Path, Path]:
    """Write file and page; single steps and failed ratings go where `hifi plan` does not look."""
    others = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    if not is_rating or not rating["rated"]:
        folder /= _LOOKS
    folder.mkdir(parents=True, exist_ok=True)
    rated = rating["machine"]
    name = "-".join(
        (
            rating["what"],
            rated["instance"] or f"{rated['cores']}-cores",
            f"w{rating['workers']}",
            f"b{rating['posted_batch']}",
            str(rating["bytes"]),
            *(["realtime"] if rating["latency"] == "realtime" else []),
        )
    )
    file, page = folder / f"{name}.json", folder / f"{name}.html"
    file.write_text(_text(rating))
    page.write_text(sheet(rating, [*others, rating]))
    return file, page


def _text(rating: Mapping[str, Any]) -> str:
    """Return JSON with a line for each member and each step, so that diffs are readable."""
    steps = ",\n  ".join(json.dumps(step) for step in rating["steps"])
    rest = {name: value for name, value in rating.items() if name != "steps"}
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in rest.items()]
    return "{\n " + ",\n ".join([*lines, f'"steps": [\n  {steps}\n ]']) + "\n}\n"
