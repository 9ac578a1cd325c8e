"""Settings of the steps of pipelines: expressions, windows, keys."""
