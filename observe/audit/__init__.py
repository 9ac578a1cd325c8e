"""The audit: the outcome of every acknowledged event, minute by minute."""
