"""Finds and replaces names that an earlier release used: `hifi migrate`."""
