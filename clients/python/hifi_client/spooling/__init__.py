"""Keeps events on this machine's disk until the gateway has them."""
