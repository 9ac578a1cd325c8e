"""Says how long events take to each node of their way, and through it. Pure."""

from dataclasses import replace

from observe.lag.progress import Lags, Progress, Rolling
from shared.proof.overview import Node, NodeLag, Quantiles


def node_lags(
    progress: Progress, entry: Rolling, process: Rolling, at_ms: int, *, is_pipelines: bool = False
) -> tuple[NodeLag, ...]:
    """Gateway, Kafka, delivery and retrier, as an event passes them; or the pipeline.

    `entry` and `process` are the ledger's: into the gateway, and through it.
    """
    ingest = Quantiles.of(entry.read(now_ms=at_ms))
    stored = Quantiles.of(process.read(now_ms=at_ms))
    taken = Quantiles.of(progress.delivery.in_from_accepted.read(now_ms=at_ms))
    return (
        NodeLag(Node.GATEWAY, in_from_event=ingest, out_from_accepted=stored, process=stored),
        NodeLag(
            Node.KAFKA,
            in_from_accepted=stored,
            out_from_accepted=taken,
            process=_between(stored, taken),
        ),
        *(
            (_node(Node.PIPELINE, progress.delivery, at_ms),)
            if is_pipelines
            else (
                _node(Node.DELIVERY, progress.delivery, at_ms),
                _node(Node.RETRIER, progress.retrier, at_ms),
            )
        ),
    )


def _node(node: Node, lags: Lags, at_ms: int) -> NodeLag:
    return NodeLag(
        node,
        in_from_accepted=Quantiles.of(lags.in_from_accepted.read(now_ms=at_ms)),
        out_from_event=Quantiles.of(lags.out_from_event.read(now_ms=at_ms)),
        out_from_accepted=Quantiles.of(lags.out_from_accepted.read(now_ms=at_ms)),
        process=Quantiles.of(lags.process.read(now_ms=at_ms)),
    )


def _between(before: Quantiles | None, after: Quantiles | None) -> Quantiles | None:
    """The time of a node that does not report it: the means' difference is exact."""
    if before is None or after is None:
        return None
    return replace(
        after,
        mean_ms=max(0.0, after.mean_ms - before.mean_ms),
        p50_ms=max(0.0, after.p50_ms - before.p50_ms),
        p95_ms=max(0.0, after.p95_ms - before.p95_ms),
        p99_ms=max(0.0, after.p99_ms - before.p99_ms),
    )
