"""Kafka at work: topics, records, positions."""
