"""Looks up events, their outcomes, statements and changes for customers."""
