"""Runs a rating and writes its file and its report: what `hifi rate` runs.

python -m loadtests ingest --gateway http://GATEWAY:8080 --label c7g.large
"""

import argparse
import json
import os
import sys
from pathlib import Path

from loadtests.arrivals import seconds_of
from loadtests.rating import Wanted, rate
from loadtests.report.sheet import sheet
from loadtests.slo import Slo
from shared.runtime.setup_error import OperatorError

_INVALID = 3


def main() -> int:
    """0 for a rating, 3 if nothing could be rated, 1 for what a person must mend."""
    options = _parser().parse_args()
    wanted = _wanted(options)
    try:
        rating = rate(wanted, _say)
    except OperatorError as error:
        sys.stderr.write(f"hifi: {error}\n")
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    machine = wanted.label or f"{rating['generator']['cores']}-cores"
    name = f"{wanted.what}-{machine}-w{wanted.workers}-b{wanted.batch}-{wanted.event_bytes}"
    file = options.out / f"{name}.json"
    file.write_text(json.dumps(rating, indent=1) + "\n")
    others = [json.loads(path.read_text()) for path in sorted(options.out.glob("*.json"))]
    page = file.with_suffix(".html")
    page.write_text(sheet(rating, others))
    for caveat in rating["caveats"]:
        _say(f"  {caveat}")
    sys.stdout.write(
        f"rated {rating['rated_per_s']:,.0f} events/s, saturated"
        f" {rating['saturated_per_s']:,.0f} events/s\n{file}\n{page}\n"
    )
    return 0 if rating["rated_per_s"] else _INVALID


def _wanted(options: argparse.Namespace) -> Wanted:
    plain = Wanted(what=options.what)
    asked = plain.objective
    slo = Slo(
        p99_ms=options.slo_p99_ms or asked.p99_ms,
        error_share=options.slo_errors,
        age_p95_ms=options.slo_age_p95_ms or asked.age_p95_ms,
        backlog_share=asked.backlog_share,
    )
    return Wanted(
        what=options.what,
        gateway=options.gateway,
        api_key=os.environ.get("HIFI_API_KEY", ""),
        kafka=options.kafka or None,
        stream=options.stream,
        batch=options.batch,
        event_bytes=options.event_bytes,
        slo=slo,
        start=options.start,
        rate=options.rate,
        hold_s=seconds_of(options.hold),
        warmup_s=seconds_of(options.warm_up),
        spacing=options.spacing,
        processes=options.processes or max(1, (os.cpu_count() or 1) // 2),
        sink_host=options.sink_host,
        label=options.label,
        workers=options.workers,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadtests", description=__doc__)
    parser.add_argument("what", choices=["ingest", "delivery", "whole"])
    parser.add_argument("--gateway", default=Wanted().gateway)
    parser.add_argument("--kafka", default="")
    parser.add_argument("--stream", default="rating")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--event-bytes", type=int, default=500)
    parser.add_argument("--slo-p99-ms", type=float)
    parser.add_argument("--slo-age-p95-ms", type=float)
    parser.add_argument("--slo-errors", type=float, default=Slo().error_share)
    parser.add_argument("--start", type=float)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--hold", default="60s")
    parser.add_argument("--warm-up", default="15s")
    parser.add_argument("--spacing", choices=["poisson", "even"], default="poisson")
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--sink-host", default="127.0.0.1")
    parser.add_argument("--label", default="")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("loadtests/ratings"))
    return parser


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
