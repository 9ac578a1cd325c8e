"""Stores packed events in Kafka, and notes the acknowledged ones in the ledger."""
