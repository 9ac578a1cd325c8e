"""Keeps the state of events that were read before: windows that are open, and keys seen."""
