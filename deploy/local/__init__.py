"""The embedded stack: real Kafka, all services, one supervisor, child processes of one command."""
