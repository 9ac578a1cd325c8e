"""Lanes: where each destination is in its stream, and the Spark jobs that send what is new."""
