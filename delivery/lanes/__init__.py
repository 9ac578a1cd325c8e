"""Lanes: the position of each destination in its stream, and the Spark jobs that send events."""
