"""Reads and writes the gateways' shared state in Kafka: settings, receipts, replays, letters."""
