"""Computes each stage's share of an event's whole time, so that the shares add up to it."""

from shared.proof.overview import DestinationView, Stage

# Every event goes through these; the rest of the mean, without them and the retrier, is waiting.
_EVERYBODYS = (Stage.GATEWAY, Stage.QUEUE, Stage.DELIVERY, Stage.PIPELINE)


def time_shares(view: DestinationView) -> tuple[tuple[str, float], ...]:
    """Stage and milliseconds of the mean since acceptance; nothing while none was delivered.

    The retrier meets only some of the events, so its time counts for as many of them. The rest of
    the mean is the time that events wait in a tier; if none was tried again it is Kafka's, whose
    own time is a difference of others' anyway. Stages that together claim more than the whole, as
    they look at more events than those delivered, share it in proportion.
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
    # Any share of zero is zero.
    part = whole.mean_ms / claimed_ms if claimed_ms else 0.0
    return tuple((stage.value, shares[stage] * part) for stage in Stage if stage in shares)
