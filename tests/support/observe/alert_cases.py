"""Lists, for each alert, series that make it fire, series that must not, and its text."""

from dataclasses import dataclass

BILLING = 'destination="orders/billing"'


@dataclass(frozen=True)
class Case:
    """Series that make one alert fire, series that must not, and the alert's text."""

    alert: str
    fires: dict[str, str]
    quiet: dict[str, str]
    at: str
    summary: str
    labels: dict[str, str]
    # The value, if it is also in the alert's description.
    value: str = ""


DESTINATION = {"destination": "orders/billing"}


def verdict_is(word: str, cause: str) -> str:
    return f'hifi_observe_verdict{{{BILLING},verdict="{word}",cause="{cause}"}}'


def pipeline_is(word: str, cause: str) -> str:
    labels = f'destination="orders/pipeline:sales",verdict="{word}",cause="{cause}"'
    return f"hifi_observe_verdict{{{labels}}}"


EXECUTOR_ENDED = 'hifi_pipelines_executor_ended_total{pipeline="sales",tenant="acme"}'
OLDEST = f"hifi_observe_oldest_age_seconds{{{BILLING}}}"
LAG = f'hifi_observe_lag_seconds{{{BILLING},stage="end to end",since="accepted",percentile="95"}}'
LAG_LABELS = {**DESTINATION, "stage": "end to end", "since": "accepted", "percentile": "95"}
CASES = [
    Case(
        "HifiLossOverOnePercent",
        {f"hifi_observe_lost_ratio{{{BILLING}}}": "0 0.02x10"},
        {f"hifi_observe_lost_ratio{{{BILLING}}}": "0.01x10"},
        "1m",
        "orders/billing has lost 2% of a minute",
        DESTINATION,
    ),
    Case(
        "HifiLoss",
        {
            f'hifi_observe_lost_events{{{BILLING},stage="queue"}}': "0 2x10",
            f'hifi_observe_lost_events{{{BILLING},stage="delivery"}}': "0 1x10",
        },
        {f'hifi_observe_lost_events{{{BILLING},stage="queue"}}': "0x10"},
        "1m",
        "orders/billing has lost 3 events",
        DESTINATION,
    ),
    Case(
        "HifiUnaccounted",
        {f"hifi_observe_unaccounted_events{{{BILLING}}}": "7x20"},
        {f"hifi_observe_unaccounted_events{{{BILLING}}}": "7 7 0x20"},
        "4m",
        "7 events of orders/billing have no outcome",
        DESTINATION,
    ),
    Case(
        "HifiCannotTell",
        {f"hifi_observe_overdue_checks{{{BILLING}}}": "1x60"},
        {f"hifi_observe_overdue_checks{{{BILLING}}}": "1x10 0x60"},
        "12m",
        "Nobody can tell whether orders/billing has lost events",
        DESTINATION,
        "1",
    ),
    Case(
        "HifiCannotTell",
        # A week of minutes, with a restart of Hifi in between.
        {f"hifi_observe_overdue_checks{{{BILLING}}}": "10068x20 _ _ 10069x60"},
        {f"hifi_observe_overdue_checks{{{BILLING}}}": "10068x10 0x60"},
        "25m",
        "Nobody can tell whether orders/billing has lost events",
        DESTINATION,
        "10069",
    ),
    Case(
        "HifiUnreadableRecords",
        {"hifi_observe_unreadable_records": "0 3x10"},
        {"hifi_observe_unreadable_records": "0x10"},
        "1m",
        "3 records prove nothing: the audit could not read them",
        {},
    ),
    Case(
        "HifiAuditBehind",
        {"hifi_observe_audit_behind_seconds": "700x40", "hifi_observe_up": "1x40"},
        {"hifi_observe_audit_behind_seconds": "60x40", "hifi_observe_up": "1x40"},
        "8m",
        "Losses are not checked now",
        {},
    ),
    Case(
        "HifiAuditBehind",
        {"hifi_gateway_up": "1x40"},
        {"hifi_observe_up": "1x40"},
        "8m",
        "Losses are not checked now",
        {},
    ),
    Case(
        "HifiLagBurn",
        {LAG: "1x60 45x60"},
        # A quarter of a minute in an hour is within the budget.
        {LAG: "1x90 45 45 1x40"},
        "50m",
        "orders/billing is late too much of the time",
        LAG_LABELS,
    ),
    Case(
        "HifiLagBurn",
        {LAG: "1x30 45x8"},
        # Just as late, but within the first minutes ever: there is no hour to judge yet.
        {LAG: "_x30 45x8"},
        "19m",
        "orders/billing is late too much of the time",
        LAG_LABELS,
    ),
    Case(
        "HifiStreamStopped",
        {f"hifi_observe_silent_seconds{{{BILLING}}}": "0+30x30"},
        {
            f"hifi_observe_silent_seconds{{{BILLING}}}": "0 30 60 90 0x30",
            # The lane was down for a part of the time before it was paused.
            f"hifi_delivery_lane_up{{{BILLING}}}": "1 0 stale",
        },
        "8m",
        "orders/billing makes no progress",
        DESTINATION,
    ),
    Case(
        "HifiStreamStopped",
        {f"hifi_delivery_lane_up{{{BILLING}}}": "0x30"},
        {f"hifi_delivery_lane_up{{{BILLING}}}": "1 0 0 1x30"},
        "4m",
        "orders/billing makes no progress",
        DESTINATION,
    ),
    Case(
        "HifiRetrierStopped",
        {
            'hifi_retrier_lane_up{lane="retrier"}': "1x40",
            'hifi_retrier_lane_up{lane="retrier-slow"}': "0x40",
        },
        {'hifi_retrier_lane_up{lane="retrier"}': "1x40"},
        "8m",
        "The retrier is down: events that wait for a retry are not sent",
        {},
    ),
    Case(
        "HifiPipelineStopped",
        {
            'hifi_pipelines_lane_up{pipeline="sales"}': "0x40",
            'hifi_pipelines_lane_stalled_seconds{pipeline="sales"}': "0x40",
        },
        {
            'hifi_pipelines_lane_up{pipeline="sales"}': "1x40",
            'hifi_pipelines_lane_stalled_seconds{pipeline="sales"}': "0x40",
        },
        "8m",
        "The pipeline sales makes no progress",
        {"pipeline": "sales"},
    ),
    Case(
        "HifiPipelineRefused",
        {pipeline_is("DISABLED", "refused"): "1x20"},
        {pipeline_is("OK", ""): "1x20"},
        "3m",
        "orders/pipeline:sales is DISABLED: refused",
        {"destination": "orders/pipeline:sales", "verdict": "DISABLED"},
    ),
    Case(
        "HifiPipelineBehind",
        {pipeline_is("SLOW", "late"): "1x80"},
        # A destination has an alert of its own.
        {f'hifi_observe_verdict{{{BILLING},verdict="SLOW",cause="late"}}': "1x80"},
        "17m",
        "orders/pipeline:sales is SLOW: late",
        {"destination": "orders/pipeline:sales", "verdict": "SLOW"},
    ),
    Case(
        "HifiPipelineDeadLetters",
        {pipeline_is("REJECTING", "dead_letters"): "1x20"},
        {pipeline_is("OK", ""): "1x20"},
        "3m",
        "orders/pipeline:sales is REJECTING: dead_letters",
        {"destination": "orders/pipeline:sales", "verdict": "REJECTING"},
    ),
    *(
        Case(
            "HifiPipelineEndsExecutors",
            {
                EXECUTOR_ENDED: values,
                'hifi_pipelines_executor_ended_total{pipeline="visits",tenant="acme"}': "4x200",
            },
            {EXECUTOR_ENDED: "1x200"},
            "70m",
            "sales of acme ends the executor of all pipelines",
            {"pipeline": "sales", "tenant": "acme"},
        )
        # The first executor that a new process counts, and one more.
        for values in ("_x130 1x20", "1x130 2x20")
    ),
    Case(
        "HifiPipelineLate",
        {'hifi_pipelines_events_total{pipeline="sales",outcome="late"}': "0+20x60"},
        {'hifi_pipelines_events_total{pipeline="sales",outcome="late"}': "0+1x60"},
        "14m",
        "Events of sales come too late for their windows",
        {"pipeline": "sales"},
    ),
    Case(
        "HifiRetentionRisk",
        {f"hifi_observe_oldest_age_seconds{{{BILLING}}}": "400000x10"},
        {f"hifi_observe_oldest_age_seconds{{{BILLING}}}": "300000x10"},
        "1m",
        "Events of orders/billing are 4d 15h 6m 40s old",
        DESTINATION,
    ),
    Case(
        "HifiHotPartition",
        {
            'hifi_observe_fullest_partition_ratio{stream="orders"}': "3.2x80",
            'hifi_observe_events_per_second{stream="orders"}': "500x80",
            'hifi_observe_fullest_partition_ratio{stream="even"}': "1.4x80",
            'hifi_observe_events_per_second{stream="even"}': "500x80",
        },
        # A stream of a few events has them all in one place, too.
        {
            'hifi_observe_fullest_partition_ratio{stream="orders"}': "3.2x80",
            'hifi_observe_events_per_second{stream="orders"}': "20x80",
        },
        "17m",
        "A Kafka partition of orders gets 3.2 times its share",
        {"stream": "orders"},
    ),
    *(
        Case(
            alert,
            # The cause may change meanwhile.
            {
                verdict_is(word, "status_503"): "1x20 _x20",
                verdict_is(word, "read_timeout"): "_x20 1x40",
                OLDEST: "45x60",
            },
            {verdict_is("OK", ""): "1x60", OLDEST: "45x60"},
            "25m",
            f"orders/billing is {word}: read_timeout",
            {**DESTINATION, "verdict": word},
        )
        for alert, word in (
            ("HifiDestinationFailing", "FAILING"),
            ("HifiDestinationRejecting", "REJECTING"),
            ("HifiDestinationRateLimited", "RATE-LIMITED"),
            ("HifiDestinationSlow", "SLOW"),
            ("HifiDestinationHeld", "HELD"),
            ("HifiDestinationHeld", "DISABLED"),
        )
    ),
    Case(
        "HifiDestinationSlow",
        # 95 % are late, whatever the backlog.
        {verdict_is("SLOW", "slow_answers"): "1x60", OLDEST: "3x60", LAG: "31x60"},
        # The destination answers slowly, but keeps up.
        {verdict_is("SLOW", "slow_answers"): "1x60", OLDEST: "3x60", LAG: "3x60"},
        "25m",
        "orders/billing is SLOW: slow_answers",
        {**DESTINATION, "verdict": "SLOW"},
    ),
    *(
        Case(
            "HifiDestinationInTrouble",
            # The first time that Prometheus sees it.
            {verdict_is("OK", ""): "1x1 _x9", verdict_is(word, "status_503"): "_x2 1x9"},
            {verdict_is("PAUSED", "paused"): "1x10"},
            "1m",
            f"orders/billing is {word}: status_503",
            {**DESTINATION, "verdict": word},
        )
        for word in ("SLOW", "RATE-LIMITED", "FAILING", "REJECTING", "HELD", "DISABLED", "STALLED")
    ),
    Case(
        "HifiInternalFault",
        {f'hifi_delivery_events_parked_total{{{BILLING},cause="internal"}}': "0x2 3x20"},
        {f'hifi_delivery_events_parked_total{{{BILLING},cause="breaker_open"}}': "0+3x20"},
        "5m",
        "Events of orders/billing wait because of a fault in Hifi",
        DESTINATION,
    ),
    Case(
        "HifiDestinationWillBeDisabled",
        {f"hifi_delivery_failing_ratio{{{BILLING}}}": "0.68+0.01x10"},
        {f"hifi_delivery_failing_ratio{{{BILLING}}}": "1x10"},
        "2m",
        "orders/billing will be disabled: 72% of the time until then has passed",
        DESTINATION,
    ),
    Case(
        "HifiUnknownDestination",
        {f"hifi_observe_unknown_waiting_events{{{BILLING}}}": "7x60"},
        # A slow upgrade.
        {f"hifi_observe_unknown_waiting_events{{{BILLING}}}": "7x20 _x40"},
        "20m",
        "7 events wait for the unknown destination orders/billing",
        DESTINATION,
    ),
    Case(
        "HifiDeadLetterGrowth",
        {f"hifi_observe_dead_events{{{BILLING}}}": "100+10x60"},
        {f"hifi_observe_dead_events{{{BILLING}}}": "100+1x60"},
        "20m",
        "orders/billing has 300 more dead letters in 15 minutes",
        DESTINATION,
    ),
    Case(
        "HifiGatewayDown",
        {"hifi_gateway_up": "0x10"},
        {"hifi_gateway_up": "1 0 1x10"},
        "3m",
        "No gateway takes events",
        {},
    ),
    Case(
        "HifiAckErrorBurn",
        {
            'hifi_gateway_events_total{stream="orders",result="accepted"}': "0+970x200",
            'hifi_gateway_events_total{stream="orders",result="unknown"}': "0+30x200",
        },
        # One of a few events in a quiet hour.
        {
            'hifi_gateway_events_total{stream="orders",result="accepted"}': "0+1x200",
            'hifi_gateway_events_total{stream="orders",result="unknown"}': "0 1x199",
        },
        "61m",
        "The gateway fails to acknowledge too many events",
        {},
    ),
    Case(
        "HifiUnderMinIsr",
        {"hifi_observe_under_min_isr_topics": "2x10"},
        {"hifi_observe_under_min_isr_topics": "2 0x10"},
        "3m",
        "2 topics have too few replicas in sync",
        {},
    ),
    Case(
        "HifiShortOfCopies",
        {"hifi_gateway_short_of_copies_topics": "1x20"},
        {"hifi_gateway_short_of_copies_topics": "1x3 0x20"},
        "9m",
        "1 streams are kept in too few copies",
        {},
    ),
    Case(
        "HifiClockSkew",
        {'hifi_observe_clock_skew_seconds{clock="gateway"}': "-4x40"},
        {'hifi_observe_clock_skew_seconds{clock="gateway"}': "0.9x40"},
        "8m",
        "The clock of gateway is 4s off the broker's",
        {"clock": "gateway"},
    ),
]
