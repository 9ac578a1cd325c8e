"""Divides a service's work among its processes, and fences processes that have lost theirs."""
