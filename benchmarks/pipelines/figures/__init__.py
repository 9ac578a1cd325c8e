"""Measurements of pipelines.

Each module has `measure(bench)`, which returns figures by name. New modules are found and run too.
"""
