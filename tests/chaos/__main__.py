"""`make chaos`: runs one seed, prints what it does, and ends with one line of JSON."""

import argparse
import json
import logging
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.actions import KINDS
from tests.chaos.campaign import Campaign, run_campaign
from tests.chaos.plan import chaos_plan
from tests.chaos.put_in import FOUND_AS, PutIn
from tests.chaos.run_log import RunLog

_LOGS = Path("build/chaos")


def main() -> int:
    asked = arguments()
    plan = chaos_plan(asked.seed, minutes=asked.minutes, brokers=asked.brokers)
    if asked.plan:
        sys.stdout.write(f"{plan}\n")
        return 0
    # Kafka is away on purpose, and its client would log pages about that.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    log = RunLog(_LOGS / f"seed-{asked.seed}.log")
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-{asked.seed}-"))
    campaign = run_campaign(plan, folder=folder, log=log, fault=asked.put_in)
    log.say(how_often(campaign))
    log.say(json.dumps(summary(campaign)))
    if campaign.found:
        log.say(f"the processes' logs are in {folder / 'logs'}")
    else:
        shutil.rmtree(folder)
    return 0 if is_as_wanted(campaign, asked.put_in) else 1


def is_as_wanted(campaign: Campaign, fault: PutIn | None) -> bool:
    """Return whether nothing was found, or only the fault that was put in, and its consequences."""
    found = {finding.what for finding in campaign.found}
    if fault is None:
        return not found
    return FOUND_AS[fault][0] in found and found <= set(FOUND_AS[fault])


def how_often(campaign: Campaign) -> str:
    """Return how often each action has happened, of how many that were planned."""
    planned = Counter(action.kind for action in campaign.plan.actions)
    lines = [f"{campaign.done.get(kind, 0):4} of {planned[kind]:3}  {kind}" for kind in KINDS]
    return "\n".join(["actions done, of those planned", *lines])


def summary(campaign: Campaign) -> dict[str, object]:
    """Return the figures in the last line of a run."""
    senders = campaign.customers.senders.values()
    statuses: dict[int, int] = {}
    for sender in senders:
        for status, count in sender.statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    return {
        "seed": campaign.plan.seed,
        "brokers": campaign.plan.brokers,
        "rounds": len(campaign.plan.rounds),
        "took_s": round(campaign.log.took_s),
        "acked": sum(len(sender.acked) for sender in senders),
        "owed": campaign.owed,
        "arrivals": len(campaign.destinations.arrivals),
        "answers": {str(status): statuses[status] for status in sorted(statuses)},
        "done": {kind: campaign.done.get(kind, 0) for kind in KINDS},
        "moods_met": dict(campaign.destinations.served),
        "peaks_mb": campaign.world.peaks_mb,
        "deaths": [death._asdict() for death in campaign.world.all_deaths()],
        "errors_logged": campaign.world.errors(),
        "findings": [finding._asdict() for finding in campaign.found],
    }


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the options of a run, from this process' command line unless other words are given."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=1, help="the seed from which the whole plan follows"
    )
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="minutes of trouble, in rounds of 40 s"
    )
    parser.add_argument(
        "--brokers", type=int, choices=(1, 3), help="by default 3 for every third seed, else 1"
    )
    parser.add_argument("--plan", action="store_true", help="only print the plan")
    parser.add_argument(
        "--put-in", choices=tuple(FOUND_AS), help="one fault by hand, which must be found"
    )
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
