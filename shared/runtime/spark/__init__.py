"""Spark at work: sessions, lanes, rows, checkpoints."""
