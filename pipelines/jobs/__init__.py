"""A Spark job of pipelines: its course, what it writes, what comes of its events."""
