"""Rows of tables over HTTP: written to Kafka, read and watched from this machine's copies."""
