"""Judges pipelines and makes Spark plans of them."""
