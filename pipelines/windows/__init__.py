"""Keeps what must be known of events that were read before: windows that are open, keys seen."""
