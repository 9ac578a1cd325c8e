"""Starts delivery's Spark workers."""

from shared.runtime.spark.worker_daemon import LANES_BYTES_MAX, run_daemons

# The name of the workers for jobs of unhealthy destinations.
ANY_WORKER = "any"
# Destinations that are slow, failing or far behind have up to a process for each of their Kafka
# partitions, all started at once: healthy ones must not wait for a processor behind them.
_NICENESS = 5

if __name__ == "__main__":
    run_daemons(
        "delivery.lanes.task",
        service="delivery",
        data_bytes_max=LANES_BYTES_MAX,
        niceness={ANY_WORKER: _NICENESS},
    )
