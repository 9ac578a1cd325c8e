"""An event, the facts that are known of it, and where it lies in Kafka."""
