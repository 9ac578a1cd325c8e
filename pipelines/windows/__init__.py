"""Keeps the state of events that were read before: open windows, and known keys."""
