"""Spark at work: sessions, clusters, rows, workers."""
