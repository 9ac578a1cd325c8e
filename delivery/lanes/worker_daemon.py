"""Starts delivery's Spark workers."""

from shared.runtime.spark.worker_daemon import run_daemon

if __name__ == "__main__":
    run_daemon("delivery.lanes.task", service="delivery")
