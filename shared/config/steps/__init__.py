"""What steps of pipelines can be told: expressions, windows, keys."""
