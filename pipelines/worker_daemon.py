"""Starts the Spark workers of pipelines that make several events of one."""

from shared.runtime.spark.worker_daemon import run_daemon

if __name__ == "__main__":
    run_daemon("pipelines.plan", service="pipelines")
