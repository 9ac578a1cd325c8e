"""Spark jobs of pipelines: how they run, the records they write, and the outcomes of events."""
