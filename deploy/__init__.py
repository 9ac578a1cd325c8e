"""Runs Hifi on one machine or on AWS; has the `hifi` command, alerts and dashboards."""
