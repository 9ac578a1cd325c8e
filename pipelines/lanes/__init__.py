"""Plans lanes: the work of pipelines in their streams, and in archives of those."""
