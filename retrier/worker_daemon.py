"""Starts the retrier's Spark workers."""

from shared.runtime.spark.worker_daemon import LANES_BYTES_MAX, run_daemon

if __name__ == "__main__":
    run_daemon("retrier.task", service="retrier", data_bytes_max=LANES_BYTES_MAX)
