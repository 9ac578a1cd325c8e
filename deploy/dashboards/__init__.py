"""Grafana dashboards, written from Python so that no panel can name a metric in vain."""
