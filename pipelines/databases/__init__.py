"""Writes events to databases, with the next offset in the same transaction: exactly once."""
