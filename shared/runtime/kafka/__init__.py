"""Access to Kafka: topics, records, positions."""
