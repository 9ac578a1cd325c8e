"""Settings of pipelines' steps: expressions, windows, keys."""
