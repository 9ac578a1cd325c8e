"""The ids of many events at once: their roots, and a comparison of the ledger's with the log's."""
