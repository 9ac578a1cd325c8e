"""Writes the load of delivery as a query of Prometheus, by which an autoscaler counts processes.

It is the load of ADR 0065 in events/s, before it is divided by a rating: `deploy/aws` computes the
same from a page of metrics. Replace `$selector` with the labels of one Hifi.
"""

from deploy.aws.machine.load import NOT_OURS
from shared import metric_names as m
from shared.scale.policy import DRAIN_S

SELECTOR = "$selector"


def load_query() -> str:
    """Return the query; it has no result while no observer is active."""
    ours = (
        f"(max by (destination) ({_of(m.OBSERVE_BACKLOG_EVENTS)}) unless on (destination)"
        f" {_of(m.OBSERVE_VERDICT, _is_one_of(NOT_OURS))} == 1)"
    )
    of_stream = f'label_replace({ours}, "stream", "$1", "destination", "([^/]+)/.*")'
    rates = f"max by (stream) ({_of(m.OBSERVE_EVENTS_PER_SECOND)})"
    arrivals = f"sum(0 * {of_stream} + on (stream) group_left () {rates})"
    # Events that wait for a retry belong to the tiers until they are due.
    waiting = f"max by (destination, cause) ({_of(m.OBSERVE_WAITING_EVENTS)})"
    backlog = f"sum({ours}) - (sum({waiting} and on (destination) {ours}) or {_ZERO})"
    return (
        f"({arrivals} or {_ZERO})\n"
        f"+ clamp_min({backlog} or {_ZERO}, 0) / {DRAIN_S:g}\n"
    )  # fmt: skip


def _of(metric: m.Metric, condition: str = "") -> str:
    return f"{metric.name}{{{SELECTOR}{condition and f',{condition}'}}}"


def _is_one_of(verdicts: frozenset[str]) -> str:
    return f'verdict=~"{"|".join(sorted(verdicts))}"'


# Nothing to do is no reason to have no result: an autoscaler would wait for one.
_ZERO = f"0 * max({_of(m.OBSERVE_LEASE_UP)} == 1)"
