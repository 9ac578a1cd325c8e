"""Lag and loss at every node: what the log and the receipts prove about each event."""
