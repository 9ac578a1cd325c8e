"""From a request's bytes to events packed for Kafka."""
