"""Starts the retrier's Spark workers."""

from shared.runtime.spark.worker_daemon import run_daemon

if __name__ == "__main__":
    run_daemon("retrier.task", service="retrier")
