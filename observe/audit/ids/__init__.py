"""Works on the ids of many events at once: roots, and the comparison of ledger and log."""
