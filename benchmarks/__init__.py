"""Benchmarks of speed and memory, mostly ratios to a limit from the same run; not run by tests."""
