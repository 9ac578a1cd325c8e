"""Measures lag and proves losses at every stage, from the log and the receipts."""
