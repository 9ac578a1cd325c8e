"""Measures an idle Hifi: just started, and with delivered events in the log.

It runs as with `hifi up`, with its sample stream and destination, and without an open console page.
A process's cores are its processor time, with that of its descendants, per second. The measured
minute includes one run of the audit, and begins once starts and compilation are over.
`python -m benchmarks.idle [events] [settle_s]`.
"""

import sys
import time

import httpx

from benchmarks.process_tree import used_by_each
from benchmarks.report import report
from deploy.cli.books import NoBooksError, observed_books
from deploy.cli.scale.fresh import fresh_stack
from deploy.local.stack import DEMO_STREAM, Stack

_EVENTS = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
# The audit's Spark starts after a minute.
_SETTLE_S = float(sys.argv[2]) if len(sys.argv) > 2 else 120.0  # noqa: PLR2004 - its position
_OVER_S = 60.0
_BATCH = 1_000
_EVENT = b'{"what":"%08d","filler":"' + b"x" * 460 + b'"}'
# The target for all processes together, whether the log is empty or not.
_CORES_MAX = 0.15
_DELIVERED_WITHIN_S = 120.0
_LOOK_S = 0.5


def main() -> None:
    """Print a table, and one JSON object as the last line."""
    with fresh_stack() as stack:
        fresh = _cores(stack)
        _deliver(stack)
        full = _cores(stack)
    print(f"| cores idle, at most {_CORES_MAX} | just started | with {_EVENTS:,} events |")
    print("|---|---|---|")
    for name, cores in fresh.items():
        print(f"| {name} | {cores:.3f} | {full[name]:.3f} |")
    print(f"| all | {sum(fresh.values()):.3f} | {sum(full.values()):.3f} |\n")
    report(
        "idle",
        {
            "events": _EVENTS,
            "cores_fresh": round(sum(fresh.values()), 3),
            "cores_full": round(sum(full.values()), 3),
            "cores_max": _CORES_MAX,
            "fresh": fresh,
            "full": full,
        },
        is_whole=not sys.argv[1:],
    )


def _cores(stack: Stack) -> dict[str, float]:
    """Return the cores that each process uses, by name, once it has settled."""
    time.sleep(_SETTLE_S)
    children = [*stack.children.values(), *map(stack.cluster.child, stack.cluster.broker_ids)]
    begun_s, before = time.monotonic(), [used_by_each(child.pid) for child in children]
    time.sleep(_OVER_S)
    after = [used_by_each(child.pid) for child in children]
    took_s = time.monotonic() - begun_s
    return {
        # Processes that have ended meanwhile are left out.
        child.name: round(sum(used - was.get(pid, 0) for pid, used in now.items()) / took_s, 3)
        for child, was, now in zip(children, before, after, strict=True)
    }


def _deliver(stack: Stack) -> None:
    """Send all events, and wait until the books count them as delivered."""
    with httpx.Client(base_url=stack.gateway, timeout=60) as client:
        for first in range(0, _EVENTS, _BATCH):
            each = range(first, min(first + _BATCH, _EVENTS))
            answer = client.post(
                f"/v1/streams/{DEMO_STREAM}/events",
                content=b"[%s]" % b",".join(_EVENT % number for number in each),
                headers={"content-type": "application/json"},
            )
            answer.raise_for_status()
    until_s = time.monotonic() + _DELIVERED_WITHIN_S
    while _delivered(stack) < _EVENTS:
        assert time.monotonic() < until_s, "the sent events were not delivered in time"
        time.sleep(_LOOK_S)


def _delivered(stack: Stack) -> int:
    try:
        page = observed_books(stack.bootstrap_servers, port=stack.settings.observe_metrics_port)
    except NoBooksError:
        return 0
    return sum(row.balance.delivered for row in page.rows)


if __name__ == "__main__":
    main()
