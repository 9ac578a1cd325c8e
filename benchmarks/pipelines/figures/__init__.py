"""The figures of pipelines.

Each module has `measure(bench)`, which gives its figures by name. A new module here is run too.
"""
