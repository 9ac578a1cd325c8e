"""Computes each stage's share of an event's whole time, so that the shares add up to it."""

from shared.proof.overview import DestinationView, Stage

# Every event passes these stages.
_EVERYBODYS = (Stage.GATEWAY, Stage.QUEUE, Stage.DELIVERY, Stage.PIPELINE)


def time_shares(view: DestinationView) -> tuple[tuple[str, float], ...]:
    """Return the mean time since acceptance, divided among the stages; empty without deliveries.

    Only some events pass the retrier, so its time is multiplied by their share. The rest of the
    mean is the wait in retry tiers; if no event was retried, it belongs to the queue, whose time is
    computed as a difference anyway. Stages also measure undelivered events: if their times add up
    to more than the whole, they are reduced in proportion.
    """
    whole = view.since_accepted
    if whole is None or not whole.count:
        return ()
    shares: dict[Stage, float] = {}
    for lag in view.stages:
        if lag.process is None:
            continue
        met = 1.0 if lag.stage in _EVERYBODYS else min(lag.process.count / whole.count, 1.0)
        shares[lag.stage] = lag.process.mean_ms * met
    rest_ms = whole.mean_ms - sum(shares.values())
    rest_of = Stage.RETRY_TIER if rest_ms > 0 and Stage.RETRIER in shares else Stage.QUEUE
    shares[rest_of] = max(0.0, shares.get(rest_of, 0.0) + rest_ms)
    claimed_ms = sum(shares.values())
    # If all times are zero, so are the shares.
    part = whole.mean_ms / claimed_ms if claimed_ms else 0.0
    return tuple((stage.value, shares[stage] * part) for stage in Stage if stage in shares)
