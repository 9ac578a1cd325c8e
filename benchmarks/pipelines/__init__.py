"""Measures pipelines; `figures` has a module for each measurement."""
