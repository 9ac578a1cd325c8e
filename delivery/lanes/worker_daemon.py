"""Starts delivery's Spark workers."""

from shared.runtime.spark.worker_daemon import LANES_BYTES_MAX, run_daemons

# The name of the workers that have the jobs of whoever is not well.
ANY_WORKER = "any"
# Destinations that are slow, failing or far behind have up to a process for each of their Kafka
# partitions, begun all at once: those that are well do not wait for a processor behind them.
_NICENESS = 5

if __name__ == "__main__":
    run_daemons(
        "delivery.lanes.task",
        service="delivery",
        data_bytes_max=LANES_BYTES_MAX,
        niceness={ANY_WORKER: _NICENESS},
    )
