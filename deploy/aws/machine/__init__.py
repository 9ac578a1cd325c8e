"""Runs beside Hifi on each machine, for its start, end and metrics; standard library only."""
