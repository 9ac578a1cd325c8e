"""Decisions on how much a destination may get at once, and when."""
