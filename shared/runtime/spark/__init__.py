"""Spark's sessions, clusters, rows and workers."""
