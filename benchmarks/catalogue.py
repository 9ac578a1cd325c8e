"""Lists the benches with their figures: meaning, which way is better, target, noise."""

from typing import NamedTuple


class Figure(NamedTuple):
    """A member of the JSON object that a bench prints last."""

    name: str
    meaning: str
    is_more_better: bool
    target: float | None = None
    # A change is noise up to this share of the old value, and up to `least`.
    noise: float = 0.15
    least: float = 0.0

    def meets_target(self, value: float) -> bool:
        if self.target is None:
            return True
        return value >= self.target if self.is_more_better else value <= self.target


def _more(name: str, meaning: str, target: float | None = None, *, noise: float = 0.15) -> Figure:
    return Figure(name, meaning, True, target, noise)


def _less(
    name: str,
    meaning: str,
    target: float | None = None,
    *,
    noise: float = 0.15,
    least: float = 0.0,
) -> Figure:
    return Figure(name, meaning, False, target, noise, least)


ERRORS = _less("errors", "events lost or wrong", 0, noise=0.0)

# Percentiles of a busy machine's latency move by a third between two runs of one commit.
_TAIL = 0.35

BENCHES: dict[str, tuple[Figure, ...]] = {
    "deliver": (
        _more("ratio", "(b) as a share of (a)"),
        _less("deliver_cpu_us", "processor time of an event, µs"),
        _more("deliver_events_per_s", "events/s of (b)", noise=0.25),
    ),
    "delivery": (
        _more("ratio_delivery", "(b) as a share of (a)", 0.40),
        _more("drain_per_s", "events/s of (b)", 80_000, noise=0.25),
        _less("microbatch_p95_ms", "(c) micro-batch, p95", 350),
        _less("realtime_p50_ms", "(c) real time, p50", 10, least=1),
        _less("realtime_p95_ms", "(c) real time, p95", 40, noise=_TAIL, least=2),
        _less("realtime_p99_ms", "(c) real time, p99", 1_000, noise=_TAIL, least=10),
        _less("neighbour_p99_ratio", "(d) p99 with bad neighbours ÷ without", 1.5),
    ),
    "whole_way": (
        _less("realtime_single_p50_ms_at_1000", "real time, 1,000/s: p50", least=2),
        _less("realtime_single_p99_ms_at_1000", "p99", noise=_TAIL, least=10),
        _less("microbatch_single_p50_ms_at_1000", "micro-batch, 1,000/s: p50"),
        _less("microbatch_single_p99_ms_at_1000", "p99", noise=_TAIL),
        _more("sustained_single_per_s", "single events/s sustained", noise=0.25),
        _more("sustained_batch_per_s", "events/s sustained in POSTs of 100", noise=0.25),
        _more("drain_per_s", "events/s of draining a backlog", noise=0.25),
    ),
    "fleet": (
        _less("idle_cores", "(a) cores, idle", 0.50, least=0.05),
        _less("p95_ms", "(a) age on arrival, p95", 1_500, noise=_TAIL),
        _less("load_cores", "(a) cores at 200 events/s"),
        _less("rss_mb", "(a) memory in MB", 1_500),
        _less("new_live_s", "(a) time until a new destination is live, s", 5, least=1),
        _less("crowded_ratio", "(a) others' p99 with 20 bad ones ÷ without", 1.5, noise=_TAIL),
        _less("cost_ratio_3", "(b) cost of an event, 3 processes ÷ 1", 1.2),
        _less("handover_s", "(c) planned move, p95 in s", 3, least=1),
        _less("failover_s", "(c) after kill -9, longest in s", 60, least=5),
        _less("frozen_s", "(c) after a freeze, longest in s", least=5),
        _less("real_time_p95_ms", "(d) real time, p95", 60, noise=_TAIL, least=10),
    ),
    "gateway": (
        _more("ratio_batch_1", "1 event a request, as a share of (b)", 0.60),
        _more("ratio_batch_100", "100 events, as a share of (a)", 0.40),
        _more("ratio_batch_1000", "1,000 events, as a share of (a)", 0.50),
        _less("p99_ms_batch_100", "p99 at 100 events", 100, noise=_TAIL),
        _less("us_per_single", "processor time of a request of 1 event, µs"),
        _less("rss_mb", "peak memory in MB", 256),
        _more("events_per_s_batch_1", "events/s, 1 a request", noise=0.25),
        _more("events_per_s_batch_100", "events/s, 100 a request", noise=0.25),
        _more("events_per_s_batch_1000", "events/s, 1,000 a request", noise=0.25),
    ),
    "status": (
        _less("status_s", "with observe, s", least=0.2),
        _less("without_observe_s", "without it, s", noise=0.25),
        _less("observe_start_s", "time until observe has caught up, s", noise=0.25),
    ),
    "idle": (
        _less("cores_fresh", "cores, just started", 0.15, least=0.03),
        _less("cores_full", "cores, 300,000 events in the log", 0.15, least=0.03),
    ),
    "observe": (
        # One round of this figure may be off by a tenth.
        _less("audit_cost", "(a) throughput lost to the audit, share", least=0.1),
        _more("events_per_s", "(b) events/s audited", noise=0.25),
        _more("cold_events_per_s", "(b) events/s of a new audit", noise=0.25),
        _less("p95_error_ms", "(c) error of the reported p95, ms", least=10),
        _less("index_share", "(d) throughput lost to the index, share", 0.03, least=0.03),
        _less("find_ms_p99", "(d) p99 of finding one in ten million, ms", 300),
    ),
    "archive": (
        _more("archive_events_per_s", "events/s archived", 20_000, noise=0.25),
        _more("restore_events_per_s", "events/s restored", noise=0.25),
        _more("delivery_share", "delivery's rate while archiving, share", 0.8, noise=0.1),
        _more("reading_share", "delivery's rate beside an archive's reader, share"),
        _more("db_rows_per_s", "rows/s into one table", noise=0.25),
        _more("static_gain", "500 rows: rate of static shards ÷ spread", noise=0.3),
    ),
    "client": (
        _more("send_ratio", "dicts, many at once", 0.8),
        _more("send_ratio_singly", "dicts, one by one"),
        _more("send_ratio_texts", "JSON texts"),
        _more("send_ratio_spool", "dicts through a spool"),
        _more("send_ratio_plain", "dicts, with the standard library's `json`"),
    ),
    "retrier": (
        _less("lateness_p99_s", "steady, p99 in s", 2, noise=0.25),
        _less("burst_lateness_p99_s", "20,000 due at once, p99 in s", noise=0.25),
        _less("just_started_lateness_p99_s", "first 15 s of a process, p99 in s", noise=0.25),
        _less("rss_mb", "memory in MB", 1_500),
        _less("rewrites", "rewrites of waiting events", 0, noise=0.0),
    ),
    "pipelines": (
        _more("ratio_where", "`where`, as a share of reading", 0.40),
        _more("ratio_select", "`select`, as a share of reading", 0.25),
        _more("one_partition_mb_s", "MB/s from one Kafka partition", 20),
        _less("added_lag_p95_ms", "added lag, p95", 500, noise=_TAIL),
        _less("failing_p99_ratio", "delivery's p99 with failing ones ÷ without", 1.5, noise=0.25),
        _less("idle_cores_10", "cores of ten idle pipelines", 0.3, least=0.03),
        _less("idle_mb_10", "memory of ten idle pipelines in MB", 1_300),
        _more("ratio_window", "windows, as a share of reading"),
        _less("window_over_ms_p50", "delay of a window's row, p50", noise=0.25),
        _less("window_idle_ms_max", "longest such delay once events stop", noise=_TAIL),
        _more("enrich_lookups_per_s", "look-ups per second and core", 100_000, noise=0.25),
        _more("enrich_gain", "processor time, a GET ÷ a look-up", 5, noise=0.3),
        _less("query_p99_ms", "p99 of a GET at 500/s", 20, noise=_TAIL, least=3),
    ),
}
