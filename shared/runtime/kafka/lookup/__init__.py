"""Finds events in Kafka, and reads streams in pages."""
