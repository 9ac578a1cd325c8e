"""The alerts, each with its condition, its texts and its runbook.

`page`: somebody must look now, as events are or may soon be lost, or nobody can tell. `ticket`:
look today. `note`: only informs, at once, and may end within a minute; for a channel that wakes
nobody. deploy/alerts/hifi.yaml is written from here; docs/runbooks has a page for each alert.
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

# The intervals at which Prometheus scrapes each process (docs/console.md) and evaluates the notes.
# A note about a destination in trouble comes within 15 s, and these two are most of that time.
SCRAPE_S = 5
NOTE_S = 5
# The SRE workbook's burn rates (table 5-8) for an objective of 99 %: 2 % of a month's budget within
# an hour, 5 % within six; the short window ends the alert soon after the trouble.
_LAG_BUDGET = 0.01
_ACK_BUDGET = 0.001
_BURNS = ((14.4, "1h", "5m"), (6.0, "6h", "30m"))
# Ten minutes with events: with fewer, as after a start or in a quiet hour, the share says nothing.
_LATE_SAMPLES_MIN = 20
# With fewer events than this, a few failures do not count as a burn.
_EVENTS_MIN = 100
# Half of the retention, which leaves the other half, 3.5 days, to act.
RETENTION_S_MAX = STREAM_RETENTION_MS // 2000
LOST_RATIO_MAX = 0.01
# How long Hifi tries an event, and how long a tier keeps it.
_TRIED = f"{RetrySchedule().deadline_s / 3600:g} h"
_TIERS_KEEP = f"{RETRY_RETENTION_MS // DAY_MS} days"
_SKEW_S_MAX = 1
_DEAD_GROWTH_MAX = 100
# One of eight Kafka partitions, with twice its share, needs the work of two machines; at low rates
# that does not matter.
_SHARES_MAX, _HOT_EVENTS_PER_S = 2, 100
# The second of the three warnings in the log: a day and a half of five days is left. From 1 on the
# destination is disabled, which HifiDestinationHeld reports.
_FAILING_MAX, _DISABLED_AT = WARN_AT[1], 1
_END_TO_END = f'{m.OBSERVE_LAG_SECONDS.name}{{stage="end to end",since="accepted",percentile="95"}}'


def _are_late() -> str:
    """Return the condition that events are late, as a slow destination may still keep up."""
    age = f"{m.OBSERVE_OLDEST_AGE_SECONDS.name} > {SLOW_AFTER_S}"
    return f" and on (destination) ({age} or {_END_TO_END} > {SLOW_AFTER_S})"


def _lag_burn() -> str:
    """Return the condition that a destination's p95 is too high for too much of both windows."""
    late = f"({_END_TO_END} > bool {SLOW_AFTER_S})"
    burns = " or ".join(
        f"(avg_over_time({late}[{long}:30s]) > {rate * _LAG_BUDGET:g}"
        f" and avg_over_time({late}[{short}:30s]) > {rate * _LAG_BUDGET:g})"
        for rate, long, short in _BURNS
    )
    return f"({burns}) and count_over_time({late}[1h:30s]) >= {_LATE_SAMPLES_MIN}"


def _ack_burn() -> str:
    """Return the condition that the gateway fails to acknowledge too many events of callers."""
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
        "The audit compared sets of ids and found events missing. Hifi never drops events on"
        " purpose. Find the stage that lost them, and resend them while the log still has them.",
    ),
    Alert(
        "HifiUnaccounted",
        "page",
        f"max by (destination) ({m.OBSERVE_UNACCOUNTED_EVENTS.name}) > 0",
        "{{ $value }} events of {{ $labels.destination }} have no outcome",
        "Their lane has passed them or Kafka has deleted them, but no receipt, retry or"
        " dead letter names them. They count as lost until explained.",
        for_="2m",
    ),
    Alert(
        "HifiCannotTell",
        "page",
        f"max by (destination) ({m.OBSERVE_OVERDUE_CHECKS.name}) > 0",
        "Nobody can tell whether {{ $labels.destination }} has lost events",
        "{{ $value }} minutes are overdue: they should be checked, but are not. They stay overdue"
        " until their lane reaches their events, or until Kafka deletes these, which is a loss.",
        for_="10m",
    ),
    Alert(
        "HifiUnreadableRecords",
        "ticket",
        f"max({m.OBSERVE_UNREADABLE_RECORDS.name}) > 0",
        "{{ $value }} records prove nothing: the audit could not read them",
        "Rows of the ledger, receipts, waiting records or dead letters of the last day are not in"
        " Hifi's format. Their events may look lost, or their minutes may stay overdue.",
    ),
    Alert(
        "HifiAuditBehind",
        "page",
        f"max({m.OBSERVE_AUDIT_BEHIND_SECONDS.name}) > {OVERDUE_AFTER_S}"
        f" or max({m.OBSERVE_UP.name}) < 1 or absent({m.OBSERVE_UP.name})"
        f" or max({m.OBSERVE_LEASE_UP.name}) < 1",
        "Losses are not checked now",
        "The audit has not finished a run for more than ten minutes, or no observe process is"
        " running and active. Meanwhile all other alerts about loss and lag are blind.",
        for_="5m",
    ),
)

FLOW: tuple[Alert, ...] = (
    Alert(
        "HifiLagBurn",
        "page",
        _lag_burn(),
        "{{ $labels.destination }} is late too much of the time",
        f"The p95 from acceptance to delivery was over {SLOW_AFTER_S} s so often that it uses up"
        " the month's budget of 1 % of the time. The console shows which stage takes the time.",
    ),
    Alert(
        "HifiStreamStopped",
        "page",
        f"max by (destination) ({m.OBSERVE_SILENT_SECONDS.name}) > 120"
        f" or max by (destination) ({m.DELIVERY_LANE_UP.name}) < 1",
        "{{ $labels.destination }} makes no progress",
        "Events are queued, but the lane is down or has not reported for two minutes.",
        for_="2m",
    ),
    Alert(
        "HifiRetrierStopped",
        "page",
        f"min({m.RETRIER_LANE_UP.name}) < 1 or absent({m.RETRIER_LANE_UP.name})",
        "The retrier is down: events that wait for a retry are not sent",
        f"Nothing is lost meanwhile, as long as the tiers keep records ({_TIERS_KEEP}).",
        for_="5m",
    ),
    Alert(
        "HifiRetentionRisk",
        "page",
        f"max by (destination) ({m.OBSERVE_OLDEST_AGE_SECONDS.name}) > {RETENTION_S_MAX}",
        "Events of {{ $labels.destination }} are {{ $value | humanizeDuration }} old",
        "That is over half of the log's retention. Events that the log drops before their delivery"
        " are lost: fix the destination, or raise retention.ms of its stream's topic.",
    ),
    Alert(
        "HifiHotPartition",
        "ticket",
        f"max by (stream) ({m.OBSERVE_FULLEST_PARTITION_RATIO.name}) > {_SHARES_MAX}"
        f" and on (stream) max by (stream) ({m.OBSERVE_EVENTS_PER_SECOND.name})"
        f" > {_HOT_EVENTS_PER_S}",
        "A Kafka partition of {{ $labels.stream }} gets {{ $value | humanize }} times its share",
        "Its reader has this many times the work of the others, so its events are the first to be"
        " late. Usually one ordering key has most of the events: the stream's page names it.",
        for_="15m",
    ),
    judged(
        "HifiDestinationFailing",
        "ticket",
        (StreamVerdict.FAILING,),
        "It is down, answers 5xx or does not answer. Its events wait; those that its breaker holds"
        " back are not charged an attempt. Tell the people who run it.",
        for_="5m",
    ),
    judged(
        "HifiDestinationRejecting",
        "ticket",
        (StreamVerdict.REJECTING,),
        "It answers 4xx to at least half of its events, and these become dead letters at once. Most"
        " often a key or an address is wrong.",
        for_="1m",
        whose=DESTINATIONS,
    ),
    judged(
        "HifiDestinationRateLimited",
        "ticket",
        (StreamVerdict.RATE_LIMITED,),
        "It asks for fewer events than arrive, so events wait. If this continues, they get older"
        " and older: ask its owner for a higher limit.",
        for_="15m",
    ),
    judged(
        "HifiDestinationSlow",
        "ticket",
        (StreamVerdict.SLOW,),
        f"Its events arrive over {SLOW_AFTER_S} s late. The console shows which stage takes the"
        " time.",
        also=_are_late(),
        for_="15m",
        whose=DESTINATIONS,
    ),
    judged(
        "HifiDestinationHeld",
        "ticket",
        (StreamVerdict.HELD, StreamVerdict.DISABLED),
        "It refuses everything, is gone, or has failed for days. Events of a held destination wait;"
        " those of a disabled one become dead letters. A person must look.",
        whose=DESTINATIONS,
    ),
    Alert(
        "HifiInternalFault",
        "ticket",
        "sum by (destination) (increase("
        f'{m.DELIVERY_EVENTS_PARKED.name}{{cause="{Failure.INTERNAL.value}"}}[15m])) > 0',
        "Events of {{ $labels.destination }} wait because of a fault in Hifi",
        "Sending them failed with an unexpected error, or the machine has run out of descriptors or"
        f" memory. No attempt is charged, but after {_TRIED} they become dead letters.",
    ),
    Alert(
        "HifiDestinationWillBeDisabled",
        "ticket",
        f"max by (destination) ({m.DELIVERY_FAILING_RATIO.name})"
        f" >= {_FAILING_MAX} < {_DISABLED_AT}",
        "{{ $labels.destination }} will be disabled: {{ $value | humanizePercentage }} of the time"
        " until then has passed",
        "It has taken nothing for days. Once it is disabled, its events become dead letters.",
    ),
    Alert(
        "HifiUnknownDestination",
        "ticket",
        f"max by (destination) ({m.OBSERVE_UNKNOWN_WAITING_EVENTS.name}) > 0",
        "{{ $value }} events wait for the unknown destination {{ $labels.destination }}",
        "Nobody has removed it, but no readable configuration names it. Its events"
        f" wait until it is known, and become dead letters {_TRIED} after they came.",
        # Longer than an upgrade, during which old processes cannot read new configuration.
        for_="15m",
    ),
    Alert(
        "HifiDeadLetterGrowth",
        "ticket",
        f"max by (destination) (delta({m.OBSERVE_DEAD_EVENTS.name}[15m])) > {_DEAD_GROWTH_MAX}",
        "{{ $labels.destination }} has {{ $value }} more dead letters in 15 minutes",
        "The destination refuses events permanently. The console lists them by reason. Redrive the"
        " events that it refused by mistake.",
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
        "The gateway fails to acknowledge too many events",
        "Answers of 503 and 504 are using up the month's budget of 0.1 %. Usually Kafka is slow or"
        " short of replicas in sync.",
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
        "An acknowledged event may be on only one disk, and would be lost with it.",
        for_="5m",
    ),
    Alert(
        "HifiClockSkew",
        "ticket",
        f"max by (clock) (abs({m.OBSERVE_CLOCK_SKEW_SECONDS.name})) > {_SKEW_S_MAX}",
        "The clock of {{ $labels.clock }} is {{ $value | humanizeDuration }} off the broker's",
        "Nothing is lost, but lag and minutes are as wrong as the clock. Fix its time service.",
        for_="5m",
    ),
)

# Alerts that only inform, in their own group that Prometheus evaluates more often.
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
        "This alert shows its present verdict and the cause, as the console does. It only informs:"
        " trouble that lasts raises a ticket or a page as well.",
    ),
)

GROUPS: dict[str, tuple[Alert, ...]] = {
    "hifi-loss": LOSS,
    "hifi-flow": FLOW,
    "hifi-pipelines": PIPELINE_ALERTS,
    "hifi-house": HOUSE,
    "hifi-notes": NOTES,
}
# The evaluation intervals of groups that do not use Prometheus' own setting.
INTERVALS_S = {"hifi-notes": NOTE_S}
ALERTS: tuple[Alert, ...] = tuple(alert for group in GROUPS.values() for alert in group)
