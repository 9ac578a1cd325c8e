"""Measures the way to stores and databases."""
