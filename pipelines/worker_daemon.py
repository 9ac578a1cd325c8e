"""Starts the Spark workers of pipelines, which run plans, functions and sinks."""

from shared.runtime.spark.worker_daemon import run_daemon

if __name__ == "__main__":
    run_daemon(
        "pipelines.plan",
        "pipelines.jobs.tee",
        "pipelines.archive.sink",
        "pipelines.databases.sink",
        service="pipelines",
    )
