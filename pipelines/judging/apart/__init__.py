"""Judging and trials in a separate process: the process, its clients, and its answers."""
