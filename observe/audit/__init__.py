"""The audit: checks the outcome of every acknowledged event, minute by minute."""
