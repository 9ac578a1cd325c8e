"""Runs beside Hifi on each machine: its start, end and metrics. Only the standard library."""
