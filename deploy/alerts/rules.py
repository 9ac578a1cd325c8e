"""The alerts that page somebody or open a ticket, with condition, words and runbook.

`page`: somebody must look now, as events are lost, about to be, or nobody can tell. `ticket`: look
today. `note`: only tells, at once, and may be gone in a minute; for a channel that wakes nobody.
deploy/alerts/hifi.yaml is written from here; docs/runbooks has a page for each alert.
"""

from deploy.alerts.alert import DESTINATIONS, Alert, judged
from deploy.alerts.pipeline_rules import PIPELINE_ALERTS
from shared import metric_names as m
from shared.event.times import DAY_MS
from shared.event.topics import RETRY_RETENTION_MS, STREAM_RETENTION_MS
from shared.flow.failing import WARN_AT
from shared.proof.overview import StreamVerdict
from shared.retry.attempt import Failure
from shared.retry.schedule import RetrySchedule
from shared.runtime.defaults import OVERDUE_AFTER_S, SLOW_AFTER_S

# How often Prometheus scrapes each process, as docs/console.md sets it up, and evaluates the notes.
# An alert about a destination in trouble comes within 15 s, and these two are most of that.
SCRAPE_S = 5
NOTE_S = 5
# The SRE workbook's burn rates (table 5-8) for an objective of 99 %: 2 % of a month's budget within
# an hour, 5 % within six; the short window ends the alert soon after the trouble.
_LAG_BUDGET = 0.01
_ACK_BUDGET = 0.001
_BURNS = ((14.4, "1h", "5m"), (6.0, "6h", "30m"))
# Ten minutes with events: before that the hour says nothing, as after a start or in a quiet hour.
_LATE_SAMPLES_MIN = 20
# A single event that fails in a quiet hour is no burn.
_EVENTS_MIN = 100
# Half of the retention is left to act in, 3.5 days.
RETENTION_S_MAX = STREAM_RETENTION_MS // 2000
LOST_RATIO_MAX = 0.01
# How long an event is tried, and for how long a tier keeps it.
_TRIED = f"{RetrySchedule().deadline_s / 3600:g} h"
_TIERS_KEEP = f"{RETRY_RETENTION_MS // DAY_MS} days"
_SKEW_S_MAX = 1
_DEAD_GROWTH_MAX = 100
# With twice its share of eight, one Kafka partition has as much to do as two machines; where hardly
# anything comes that is no matter.
_SHARES_MAX, _HOT_EVENTS_PER_S = 2, 100
# The second of the three warnings in the log: of five days a day and a half are left. From 1 on
# the destination is disabled, of which HifiDestinationHeld tells.
_FAILING_MAX, _DISABLED_AT = WARN_AT[1], 1
_END_TO_END = f'{m.OBSERVE_LAG_SECONDS.name}{{stage="end to end",since="accepted",quantile="0.95"}}'


def _are_late() -> str:
    """Limit it to destinations with late events: a slow one may still keep up."""
    age = f"{m.OBSERVE_OLDEST_AGE_SECONDS.name} > {SLOW_AFTER_S}"
    return f" and on (destination) ({age} or {_END_TO_END} > {SLOW_AFTER_S})"


def _lag_burn() -> str:
    """The part of the time that a destination's p95 is too late, over both windows of a burn."""
    late = f"({_END_TO_END} > bool {SLOW_AFTER_S})"
    burns = " or ".join(
        f"(avg_over_time({late}[{long}:30s]) > {rate * _LAG_BUDGET:g}"
        f" and avg_over_time({late}[{short}:30s]) > {rate * _LAG_BUDGET:g})"
        for rate, long, short in _BURNS
    )
    return f"({burns}) and count_over_time({late}[1h:30s]) >= {_LATE_SAMPLES_MIN}"


def _ack_burn() -> str:
    """The part of events that the gateway could not say yes to, through no fault of the caller."""
    name = m.GATEWAY_EVENTS.name

    def part(window: str) -> str:
        failed = f'sum(increase({name}{{result=~"retry|unknown|aborted"}}[{window}]))'
        return f"{failed} / sum(increase({name}[{window}]))"

    enough = f"sum(increase({name}[5m])) > {_EVENTS_MIN}"
    burns = " or ".join(
        f"({part(long)} > {rate * _ACK_BUDGET:g} and {part(short)} > {rate * _ACK_BUDGET:g})"
        for rate, long, short in _BURNS
    )
    return f"({burns}) and {enough}"


LOSS: tuple[Alert, ...] = (
    Alert(
        "HifiLossOverOnePercent",
        "page",
        f"max by (destination) ({m.OBSERVE_LOST_RATIO.name}) > {LOST_RATIO_MAX:g}",
        "{{ $labels.destination }} has lost {{ $value | humanizePercentage }} of a minute",
        "In the last hour the audit found a minute that lost more than 1 % of its acknowledged"
        " events. The destination's page in the console names them and the stage that lost them.",
    ),
    Alert(
        "HifiLoss",
        "ticket",
        f"sum by (destination) ({m.OBSERVE_LOST_EVENTS.name}) > 0",
        "{{ $labels.destination }} has lost {{ $value }} events",
        "The audit compared sets of ids and found events missing. Nothing is lost on purpose: find"
        " out at which stage, and send them again while the log still has them.",
    ),
    Alert(
        "HifiUnaccounted",
        "page",
        f"max by (destination) ({m.OBSERVE_UNACCOUNTED_EVENTS.name}) > 0",
        "{{ $value }} events of {{ $labels.destination }} have no outcome",
        "Their lane has passed them or Kafka has deleted them, and no receipt, retry or"
        " dead letter names them: a loss until explained.",
        for_="2m",
    ),
    Alert(
        "HifiCannotTell",
        "page",
        f"max by (destination) ({m.OBSERVE_OVERDUE_MINUTES.name}) > 0",
        "It cannot be told whether {{ $labels.destination }} is complete",
        "{{ $value }} minutes should be checked and are not. They stay so until their lane comes to"
        " their events, or Kafka deletes these, which is a loss.",
        for_="10m",
    ),
    Alert(
        "HifiUnreadableRecords",
        "ticket",
        f"max({m.OBSERVE_UNREADABLE_RECORDS.name}) > 0",
        "{{ $value }} records prove nothing: the audit could not read them",
        "Rows of the ledger, receipts, waiting records or dead letters of the last day are not what"
        " Hifi writes. Their events may look lost, or their minutes stay overdue.",
    ),
    Alert(
        "HifiAuditBehind",
        "page",
        f"max({m.OBSERVE_AUDIT_BEHIND_SECONDS.name}) > {OVERDUE_AFTER_S}"
        f" or max({m.OBSERVE_UP.name}) < 1 or absent({m.OBSERVE_UP.name})"
        f" or max({m.OBSERVE_LEASE_UP.name}) < 1",
        "Nobody looks for losses now",
        "The audit has not finished a run for more than ten minutes, or no process that observes"
        " is there and active. All other alerts about loss and lag are blind meanwhile.",
        for_="5m",
    ),
)

FLOW: tuple[Alert, ...] = (
    Alert(
        "HifiLagBurn",
        "page",
        _lag_burn(),
        "{{ $labels.destination }} is late for too much of the time",
        f"p95 from acceptance to delivery was over {SLOW_AFTER_S} s for so long that the month's"
        " budget of 1 % of the time is used up. The console shows which stage takes the time.",
    ),
    Alert(
        "HifiStreamStopped",
        "page",
        f"max by (destination) ({m.OBSERVE_SILENT_SECONDS.name}) > 120"
        f" or max by (destination) ({m.DELIVERY_LANE_UP.name}) < 1",
        "{{ $labels.destination }} makes no progress",
        "There is work and its lane has given no sign for two minutes, or is down.",
        for_="2m",
    ),
    Alert(
        "HifiRetrierStopped",
        "page",
        f"min({m.RETRIER_LANE_UP.name}) < 1 or absent({m.RETRIER_LANE_UP.name})",
        "The retrier is down: waiting events wait on",
        f"Nothing is lost while it is away, for as long as the tiers keep records ({_TIERS_KEEP}).",
        for_="5m",
    ),
    Alert(
        "HifiRetentionRisk",
        "page",
        f"max by (destination) ({m.OBSERVE_OLDEST_AGE_SECONDS.name}) > {RETENTION_S_MAX}",
        "Events of {{ $labels.destination }} are {{ $value | humanizeDuration }} old",
        "That is over half of what the log keeps. Events that the log drops before they are"
        " delivered are lost: fix the destination, or raise retention.ms of its stream's topic.",
    ),
    Alert(
        "HifiHotPartition",
        "ticket",
        f"max by (stream) ({m.OBSERVE_FULLEST_PARTITION_RATIO.name}) > {_SHARES_MAX}"
        f" and on (stream) max by (stream) ({m.OBSERVE_EVENTS_PER_SECOND.name})"
        f" > {_HOT_EVENTS_PER_S}",
        "A Kafka partition of {{ $labels.stream }} gets {{ $value | humanize }} times its share",
        "Its reader has that much more to do than the others, so its events are the first to be"
        " late. Usually one ordering key has most of the events: the stream's page names it.",
        for_="15m",
    ),
    judged(
        "HifiDestinationFailing",
        "ticket",
        (StreamVerdict.FAILING,),
        "It is down, answers 5xx or does not answer. Its events wait, and those that its breaker"
        " keeps back are not charged an attempt. Tell the people who run it.",
        for_="5m",
    ),
    judged(
        "HifiDestinationRejecting",
        "ticket",
        (StreamVerdict.REJECTING,),
        "It answers 4xx to at least half of what it gets, and what it refuses goes to dead letters"
        " at once: most often a key or an address is wrong.",
        for_="1m",
        whose=DESTINATIONS,
    ),
    judged(
        "HifiDestinationRateLimited",
        "ticket",
        (StreamVerdict.RATE_LIMITED,),
        "It asks for less than comes, so that events wait. If that goes on they get older and"
        " older: ask its owner for a higher limit.",
        for_="15m",
    ),
    judged(
        "HifiDestinationSlow",
        "ticket",
        (StreamVerdict.SLOW,),
        f"Its events come over {SLOW_AFTER_S} s late. The console shows which stage takes the"
        " time.",
        also=_are_late(),
        for_="15m",
        whose=DESTINATIONS,
    ),
    judged(
        "HifiDestinationHeld",
        "ticket",
        (StreamVerdict.HELD, StreamVerdict.DISABLED),
        "It refuses everything, is gone, or has failed for days. Held events wait, those of a"
        " disabled one go to dead letters; a person has to look.",
        whose=DESTINATIONS,
    ),
    Alert(
        "HifiInternalFault",
        "ticket",
        "sum by (destination) (increase("
        f'{m.DELIVERY_EVENTS_PARKED.name}{{cause="{Failure.INTERNAL.value}"}}[15m])) > 0',
        "Events of {{ $labels.destination }} wait for a fault of ours",
        "Sending them failed by an error that Hifi has no name for, or the machine has run out of"
        f" descriptors or memory. No attempt is charged, but after {_TRIED} they become dead"
        " letters.",
    ),
    Alert(
        "HifiDestinationWillBeDisabled",
        "ticket",
        f"max by (destination) ({m.DELIVERY_FAILING_RATIO.name})"
        f" >= {_FAILING_MAX} < {_DISABLED_AT}",
        "{{ $labels.destination }} will be disabled: {{ $value | humanizePercentage }} of the time"
        " until then have passed",
        "It has taken nothing for days. When the time is over its events go to dead letters.",
    ),
    Alert(
        "HifiUnknownDestination",
        "ticket",
        f"max by (destination) ({m.OBSERVE_UNKNOWN_WAITING_EVENTS.name}) > 0",
        "{{ $value }} events wait for {{ $labels.destination }}, of which nobody here knows",
        "Nobody has removed it, and no configuration names it that can be read here. Its events"
        f" wait until it is known, and become dead letters {_TRIED} after they came.",
        # Longer than an upgrade, during which old processes do not know the new ones' output.
        for_="15m",
    ),
    Alert(
        "HifiDeadLetterGrowth",
        "ticket",
        f"max by (destination) (delta({m.OBSERVE_DEAD_EVENTS.name}[15m])) > {_DEAD_GROWTH_MAX}",
        "{{ $labels.destination }} has {{ $value }} more dead letters in 15 minutes",
        "The destination refuses events permanently. The console lists them by reason; re-drive"
        " those that it refused by mistake.",
    ),
)

HOUSE: tuple[Alert, ...] = (
    Alert(
        "HifiGatewayDown",
        "page",
        f"max({m.GATEWAY_UP.name}) < 1 or absent({m.GATEWAY_UP.name})",
        "No gateway takes events",
        "Customers get 503 or no answer, and keep their events.",
        for_="1m",
    ),
    Alert(
        "HifiAckErrorBurn",
        "page",
        _ack_burn(),
        "The gateway cannot say yes to too many events",
        "503 and 504 use up the month's budget of 0.1 %. Usually Kafka is slow or short of"
        " replicas in sync.",
    ),
    Alert(
        "HifiUnderMinIsr",
        "page",
        f"max({m.OBSERVE_UNDER_MIN_ISR_TOPICS.name}) > 0",
        "{{ $value }} topics have too few replicas in sync",
        "Kafka refuses writes to them, so the gateway answers 503, and outcomes cannot be stored.",
        for_="1m",
    ),
    Alert(
        "HifiShortOfCopies",
        "page",
        f"max({m.GATEWAY_SHORT_OF_COPIES_TOPICS.name}) > 0",
        "{{ $value }} streams are kept in too few copies",
        "An event that was answered with 2xx may be on one disk only, and lost with it.",
        for_="5m",
    ),
    Alert(
        "HifiClockSkew",
        "ticket",
        f"max by (clock) (abs({m.OBSERVE_CLOCK_SKEW_SECONDS.name})) > {_SKEW_S_MAX}",
        "The clock of {{ $labels.clock }} is {{ $value | humanizeDuration }} off the broker's",
        "Nothing is lost, but lag and minutes are as wrong as the clock. Mend its time service.",
        for_="5m",
    ),
)

# Alerts that only inform, in a group of their own that Prometheus evaluates more often.
NOTES: tuple[Alert, ...] = (
    judged(
        "HifiDestinationInTrouble",
        "note",
        (
            StreamVerdict.SLOW,
            StreamVerdict.RATE_LIMITED,
            StreamVerdict.FAILING,
            StreamVerdict.REJECTING,
            StreamVerdict.HELD,
            StreamVerdict.DISABLED,
            StreamVerdict.STALLED,
        ),
        "The word that the first screen has for it now, and its cause. This alert only informs:"
        " trouble that lasts has a ticket or a page of its own.",
    ),
)

GROUPS: dict[str, tuple[Alert, ...]] = {
    "hifi-loss": LOSS,
    "hifi-flow": FLOW,
    "hifi-pipelines": PIPELINE_ALERTS,
    "hifi-house": HOUSE,
    "hifi-notes": NOTES,
}
# How often a group is judged, where that is not Prometheus' own setting.
INTERVALS_S = {"hifi-notes": NOTE_S}
ALERTS: tuple[Alert, ...] = tuple(alert for group in GROUPS.values() for alert in group)
