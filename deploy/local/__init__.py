"""The embedded stack: one command runs a real Kafka and all services as its child processes."""
