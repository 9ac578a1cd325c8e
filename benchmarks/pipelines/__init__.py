"""Measures pipelines: a module of `figures` for each thing that is measured."""
