"""The ids of many events at once: their roots, and the ledger's beside the log's."""
