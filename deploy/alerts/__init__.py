"""Alert rules for Prometheus, written from Python so that no rule can name a metric in vain."""
