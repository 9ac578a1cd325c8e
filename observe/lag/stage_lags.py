"""Computes how long events take to reach each stage, and to pass it. Pure."""

from dataclasses import replace

from observe.lag.progress import Lags, Progress, Rolling
from shared.proof.overview import Quantiles, Stage, StageLag


def stage_lags(
    progress: Progress, entry: Rolling, process: Rolling, at_ms: int, *, is_pipelines: bool = False
) -> tuple[StageLag, ...]:
    """Return the lags of gateway, queue, delivery and retrier, or of the pipeline.

    `entry` and `process` are from the ledger: the times to reach the gateway, and to pass it.
    """
    ingest = Quantiles.of(entry.read(now_ms=at_ms))
    stored = Quantiles.of(process.read(now_ms=at_ms))
    taken = Quantiles.of(progress.delivery.in_from_accepted.read(now_ms=at_ms))
    return (
        StageLag(Stage.GATEWAY, in_from_event=ingest, out_from_accepted=stored, process=stored),
        StageLag(
            Stage.QUEUE,
            in_from_accepted=stored,
            out_from_accepted=taken,
            process=_between(stored, taken),
        ),
        *(
            (_stage(Stage.PIPELINE, progress.delivery, at_ms),)
            if is_pipelines
            else (
                _stage(Stage.DELIVERY, progress.delivery, at_ms),
                _stage(Stage.RETRIER, progress.retrier, at_ms),
            )
        ),
    )


def _stage(stage: Stage, lags: Lags, at_ms: int) -> StageLag:
    return StageLag(
        stage,
        in_from_accepted=Quantiles.of(lags.in_from_accepted.read(now_ms=at_ms)),
        out_from_event=Quantiles.of(lags.out_from_event.read(now_ms=at_ms)),
        out_from_accepted=Quantiles.of(lags.out_from_accepted.read(now_ms=at_ms)),
        process=Quantiles.of(lags.process.read(now_ms=at_ms)),
    )


def _between(before: Quantiles | None, after: Quantiles | None) -> Quantiles | None:
    """Return the time in a stage that reports none; only the difference of means is exact."""
    if before is None or after is None:
        return None
    return replace(
        after,
        mean_ms=max(0.0, after.mean_ms - before.mean_ms),
        p50_ms=max(0.0, after.p50_ms - before.p50_ms),
        p95_ms=max(0.0, after.p95_ms - before.p95_ms),
        p99_ms=max(0.0, after.p99_ms - before.p99_ms),
    )
