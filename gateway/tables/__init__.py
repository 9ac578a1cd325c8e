"""Rows of tables over HTTP: written to Kafka, read and watched in this machine's copies."""
