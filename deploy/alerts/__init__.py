"""Alert rules for Prometheus, written in Python so that they can name only existing metrics."""
