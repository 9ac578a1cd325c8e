"""Shares a service's work out among its processes, and fences those that have lost theirs."""
