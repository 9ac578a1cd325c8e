"""Customers' settings: streams, destinations, keys, and the checks on them."""
