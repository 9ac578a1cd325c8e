"""Sends people messages about trouble: which notices are due, which were sent, and sending."""
