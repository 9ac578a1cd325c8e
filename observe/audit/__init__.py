"""The audit: what became of every acknowledged event, minute by minute."""
