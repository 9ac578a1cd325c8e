"""Applies, deletes and exports objects in files: `hifi apply`, `hifi delete`, `hifi export`."""
