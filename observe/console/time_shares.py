"""Decides what share of an event's whole time each node has, so that the shares add up to it."""

from shared.overview import DestinationView, Node

# Every event goes through these; what is left of the mean beside them and the retrier is waiting.
_EVERYBODYS = (Node.GATEWAY, Node.KAFKA, Node.DELIVERY)


def time_shares(one: DestinationView) -> tuple[tuple[str, float], ...]:
    """Node and milliseconds of the mean since acceptance; nothing while none was delivered.

    The retrier meets only some of the events, so its time counts for as many of them. The rest of
    the mean is the time that events wait in a tier.
    """
    whole = one.since_accepted
    if whole is None or not whole.count:
        return ()
    shares: dict[Node, float] = {}
    for lag in one.nodes:
        if lag.process is None:
            continue
        met = 1.0 if lag.node in _EVERYBODYS else min(lag.process.count / whole.count, 1.0)
        shares[lag.node] = lag.process.mean_ms * met
    waiting_ms = whole.mean_ms - sum(shares.values())
    if waiting_ms > 0 and Node.RETRIER in shares:
        shares[Node.RETRY_TIER] = shares.get(Node.RETRY_TIER, 0.0) + waiting_ms
    return tuple((node.value, shares[node]) for node in Node if node in shares)
