"""Sends events, and reports the fate of each."""
