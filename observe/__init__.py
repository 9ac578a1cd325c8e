"""Lag and loss at every stage: what the log and the receipts prove about each event."""
