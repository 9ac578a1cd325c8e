"""Streams out of streams: judges pipelines, makes Spark plans of them, and runs those."""
