"""What is measured of pipelines.

Each module has `measure(bench)`, which gives its figures by name. One that is dropped here is run.
"""
