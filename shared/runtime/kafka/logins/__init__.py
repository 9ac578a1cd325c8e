"""Logging in to Kafka: with tokens, and again before a login ends."""
