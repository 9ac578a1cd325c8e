"""Figures of each stream and destination over time, for the console's charts."""
