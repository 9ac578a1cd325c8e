"""Benchmarks of speed and memory, mostly as ratios to a limit in the same run; not run by tests."""
