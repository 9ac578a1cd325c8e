"""Measures what goes to stores and databases."""
