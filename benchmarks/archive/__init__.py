"""Measures archives, and pipelines that write to databases."""
