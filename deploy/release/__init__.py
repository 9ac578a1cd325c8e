"""Checks and builds a release: versions, changelog, HTTP API, packages, bills of materials."""
